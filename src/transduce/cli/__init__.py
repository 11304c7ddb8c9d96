"""Command line: a module per verb."""
