"""Write samples as WAV files of 16 bits, with the standard library alone."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transduce.errors import writing
from transduce.support.locks import whole_file


def wav_bytes(samples: NDArray[np.float32], rate: int) -> bytes:
    """Samples (n,) from -1 to 1 as the bytes of a WAV file; louder samples are clipped."""
    values = np.clip(np.round(np.asarray(samples) * 32768), -32768, 32767).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(values.tobytes())
    return buffer.getvalue()


def write_wav(path: Path, samples: NDArray[np.float32], rate: int) -> None:
    """Write a WAV file that is complete or absent.  Raises DataError if it cannot be written."""
    with writing(path), whole_file(path) as file:
        file.write(wav_bytes(samples, rate))
