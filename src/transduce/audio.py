"""Recordings of the usual formats to samples and frames of mel energies, and back."""

from transduce.speech.audio import Excerpt, audio_blocks, read_audio

__all__ = ["Excerpt", "audio_blocks", "read_audio"]
