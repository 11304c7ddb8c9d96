"""Translation and every other task from text to text, with its tools."""
