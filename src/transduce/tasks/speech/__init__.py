"""Tasks on recordings: recognition, translation, synthesis."""
