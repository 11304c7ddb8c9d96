"""Small recordings for tests, made where they are needed."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

Samples = NDArray[np.float32]


def tone(
    seconds: float, rate: int = 16_000, frequency: float = 440.0, level: float = 0.3
) -> Samples:
    """A sine."""
    times = np.arange(round(seconds * rate)) / rate
    return (level * np.sin(2 * np.pi * frequency * times)).astype(np.float32)


def noise(seconds: float, rate: int = 16_000, seed: int = 0, level: float = 0.1) -> Samples:
    """White noise."""
    generator = np.random.default_rng(seed)
    return (level * generator.standard_normal(round(seconds * rate))).astype(np.float32)


def encoded(
    samples: NDArray[Any], rate: int = 16_000, form: str = "WAV", subtype: str | None = None
) -> bytes:
    """Samples (n,), or (n, channels), as the bytes of a file."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    return file.getvalue()


def saved(path: Path, content: bytes) -> Path:
    """A file with this content, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def manifest(path: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def spoken(seconds: float, rate: int = 16_000, seed: int = 0) -> Samples:
    """Something like speech: syllables of a few tones that rise and fall, without a pause."""
    generator = np.random.default_rng(seed)
    times = np.arange(round(seconds * rate)) / rate
    sound = np.zeros(len(times))
    for harmonic in range(1, 25):
        sound += np.sin(2 * np.pi * 130 * harmonic * times + generator.uniform(0, 6)) / harmonic
    rise = np.abs(np.sin(np.pi * times * 4)) ** 2 + 0.01
    return (0.1 * sound * rise).astype(np.float32)
