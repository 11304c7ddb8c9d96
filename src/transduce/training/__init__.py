"""From data and a model to trained weights."""
