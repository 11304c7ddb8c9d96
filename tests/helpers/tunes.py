"""Tunes that small models learn to write down in seconds: a letter is a tone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from helpers.audio import Samples, encoded, manifest, noise, saved, tone
from helpers.tiny_run import stack, training

RATE = 8000
BINS = 20
TONES = {"a": 300.0, "b": 520.0, "c": 900.0, "d": 1560.0, "e": 2700.0}
AUDIO = {"rate": RATE, "bins": BINS}


def recognition_recipe(
    train: dict[str, Any], steps: int, validate_every: int | None = None
) -> dict[str, Any]:
    """A small recipe of recognition for the recordings that a section names."""
    return {
        "task": "speech-recognition",
        "data": {"train": train, "hold_out": 0.1},
        "audio": AUDIO,
        "text": {"tokenizer": {"kind": "characters"}},
        "model": {
            "d_model": 32,
            "front_end": {"channels": 32},
            "encoder": stack(d_ff=64),
            "decoder": stack(d_ff=64),
        },
        "training": training(
            steps,
            300,
            4e-3,
            warmup=20,
            validate_every=validate_every or steps,
            clip_norm=1.0,
            threads=1,
        ),
    }


def durations_recipe(train: dict[str, Any], steps: int, rounds: int) -> dict[str, Any]:
    """A small recipe of synthesis by durations, validated twice.

    rounds: of Griffin-Lim.
    """
    return {
        "task": "speech-synthesis",
        "data": {"train": train, "hold_out": 0.1},
        "audio": AUDIO,
        "model": {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2},
        "training": training(
            steps, 300, 4e-3, warmup=10, validate_every=steps // 2, clip_norm=1.0, threads=1
        ),
        "speaking": {"rounds": rounds},
        "evaluation": {"validation_texts": 2},
    }


def tune(text: str, seed: int = 0, pitch_factor: float = 1.0) -> Samples:
    """A tone of about a tenth of a second for each letter, in a little noise."""
    pause = np.zeros(RATE // 50, np.float32)
    return _in_noise([pause, *_tones(text, seed, (0.09, 0.14), pause, pitch_factor)], seed)


def slow_tune(text: str, seed: int = 0) -> Samples:
    """A tone of about a third of a second for each letter, between silence, in a little noise."""
    pause = np.zeros(RATE // 20, np.float32)
    start, end = (noise(seed % n / 60, RATE, 3, 0.003) for n in (7, 5))
    return _in_noise([start, *_tones(text, seed, (0.28, 0.36), pause), end], seed)


def _tones(
    text: str, seed: int, seconds: tuple[float, float], pause: Samples, pitch_factor: float = 1.0
) -> list[Samples]:
    """A tone for each letter, each before a pause.  seconds: of a tone, at least and at most."""
    chance = random.Random(seed)
    parts = []
    for letter in text:
        pitch = TONES[letter] * pitch_factor * chance.uniform(0.95, 1.05)
        parts += [tone(chance.uniform(*seconds), RATE, pitch, chance.uniform(0.1, 0.4)), pause]
    return parts


def _in_noise(parts: list[Samples], seed: int) -> Samples:
    """All parts, in a little noise."""
    samples: Samples = np.concatenate(parts)
    return samples + noise(len(samples) / RATE, RATE, seed, 0.003)


def write_slow_tunes(path: Path, n: int) -> dict[str, Any]:
    """Settings of the section that reads `n` slow tunes, whose letters are words."""
    rows = []
    for i, text in enumerate(melodies(n, 12)):
        file = saved(path / f"{i:04}.wav", encoded(slow_tune(text, i), RATE))
        rows.append({"audio": file.name, "text": " ".join(text)})
    return {"kind": "manifest", "path": str(manifest(path / "tunes.jsonl", rows))}


def melodies(n: int, longest: int = 5, seed: int = 0) -> list[str]:
    """Texts of 1 to `longest` letters."""
    chance = random.Random(seed)
    return ["".join(chance.choices(list(TONES), k=chance.randint(1, longest))) for _ in range(n)]


def write_tunes(
    path: Path,
    n: int,
    longest: int = 5,
    seed: int = 0,
    speakers: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Settings of the section that reads `n` tunes, written below `path`.

    Each has its letters as `text`, and in reverse order, in capitals, as `reversed`.  speakers:
    factor of the pitch of each, in turn.
    """
    rows = []
    for i, text in enumerate(melodies(n, longest, seed)):
        name, factor = list((speakers or {"": 1.0}).items())[i % len(speakers or [""])]
        file = saved(path / f"{i:04}.wav", encoded(tune(text, seed + i, factor), RATE))
        row = {"audio": file.name, "text": text, "reversed": text[::-1].upper()}
        rows.append(row | ({"speaker": name} if name else {}))
    return {"kind": "manifest", "path": str(manifest(path / "tunes.jsonl", rows))}
