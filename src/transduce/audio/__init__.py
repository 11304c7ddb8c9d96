"""Recordings of the usual formats to samples and frames of mel energies, and back."""

from transduce.audio.features import AudioConfig, Fbank, Features, FrameStream, Mel, WhisperMel
from transduce.audio.read import WHOLE, Excerpt, audio_blocks, read_audio

__all__ = [
    "WHOLE",
    "AudioConfig",
    "Excerpt",
    "Fbank",
    "Features",
    "FrameStream",
    "Mel",
    "WhisperMel",
    "audio_blocks",
    "read_audio",
]
