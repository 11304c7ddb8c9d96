"""Rows of `TASKS`: the parts of each task, from all rooms."""
