"""Decoder-only tasks: language model, dialogue, sequential recommendation."""
