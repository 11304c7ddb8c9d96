"""Many runs: sweeps over settings, and comparisons of what came of them."""
