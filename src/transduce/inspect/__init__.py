"""Inspect models: attention weights, alignments and pictures."""
