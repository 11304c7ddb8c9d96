"""Speech: recordings, features, models, recognition, transcription, synthesis."""
