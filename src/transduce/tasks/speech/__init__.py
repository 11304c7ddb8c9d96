"""Tasks on recordings: recognition and translation."""
