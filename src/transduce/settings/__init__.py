"""Settings: sections of recipes, their checks and paths."""
