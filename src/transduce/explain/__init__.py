"""Inspection of a model: attention, alignment, pictures."""
