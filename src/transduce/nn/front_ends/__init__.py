"""Raw input to vectors."""
