"""Vectors to scores."""
