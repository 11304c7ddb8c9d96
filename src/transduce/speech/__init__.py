"""Speech: recordings, features, models, recognition, transcription, synthesis."""

MOST_SPEAKERS = 26
"""Speakers that a recording may have, named A to Z."""
