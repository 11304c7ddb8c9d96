"""Explanations of the predictions of each task."""
