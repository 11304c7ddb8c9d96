"""Several runs: sweeps over settings, and comparisons."""
