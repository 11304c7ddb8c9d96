"""Run many trainings: sweeps over settings, and comparisons of the results."""
