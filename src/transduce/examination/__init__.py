"""Faults of parallel data: found line by line, counted, and left out of a cleaned corpus."""
