"""The page of the server: static files, live translation, glossaries.  Its routes are a dialect."""
