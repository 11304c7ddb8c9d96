"""Heads: vectors to scores."""
