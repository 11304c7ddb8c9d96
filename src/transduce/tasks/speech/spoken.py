"""Speech of a text: frames, and samples made of them."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.audio.features import Mel
from transduce.audio.invert import invert
from transduce.audio.write import wav_bytes, write_wav
from transduce.tasks.speech.pronunciation import BOUNDARY, Pronouncer
from transduce.tasks.speech.words import word_places
from transduce.text import Tokenizer
from transduce.text.offsets import token_spans

Samples = NDArray[np.float32]


class SpokenWord(NamedTuple):
    """A word, from `start` to `end` seconds of its speech."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class Speech:
    """Speech of a text; empty if blank.

    `samples` are computed on first use, by Griffin-Lim.
    """

    frames: Tensor = field(repr=False)
    """(t, bins) log mel magnitudes."""
    features: Mel = field(repr=False)
    stopped: bool = True
    """False if the speech ran to its limit."""
    attention: Tensor = field(default_factory=lambda: torch.zeros(0, 0), repr=False)
    """(steps, tokens) attention to the text, the end included."""
    words: tuple[SpokenWord, ...] = field(default=(), repr=False)
    """Words with their times, by a model of durations."""
    rounds: int = 60
    """Iterations of Griffin-Lim."""
    seed: int = 0

    @property
    def rate(self) -> int:
        """Samples a second."""
        return self.features.rate

    @property
    def seconds(self) -> float:
        """Length."""
        return max(0, len(self.frames) - 1) * self.features.seconds

    @functools.cached_property
    def samples(self) -> Samples:
        """Samples (n,) from -1 to 1, float32; louder samples are scaled down."""
        samples: Samples = invert(self.frames, self.features, self.rounds, self.seed).numpy()
        peak = float(np.abs(samples).max(initial=0.0))
        return samples / peak if peak > 1 else samples

    @property
    def reached(self) -> bool:
        """True if attention reached the last token of the text, or its end."""
        n_tokens = self.attention.shape[1]
        return not n_tokens or int(self.attention.argmax(1).max()) >= n_tokens - 2

    @property
    def coverage(self) -> float:
        """Share of the tokens that got the largest weight of some step, as a percentage."""
        n_tokens = self.attention.shape[1]
        return 100 * len(set(self.attention.argmax(1).tolist())) / n_tokens if n_tokens else 100.0

    @property
    def monotony(self) -> float:
        """Share of the steps that attend no further back than the step before, as a percentage."""
        places = self.attention.argmax(1) if self.attention.numel() else torch.zeros(0)
        return 100 * float((places.diff() >= 0).float().mean()) if len(places) > 1 else 100.0

    @property
    def text(self) -> str:
        """Length on a single line; blank for a blank text."""
        if not len(self.frames):
            return ""
        return f"{self.seconds:.2f} s of speech{'' if self.stopped else ', which did not end'}"

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        record = {
            "seconds": round(self.seconds, 4),
            "stopped": self.stopped,
            "reached": self.reached,
            "coverage": self.coverage,
        }
        words = [
            {"word": word, "start": round(start, 3), "end": round(end, 3)}
            for word, start, end in self.words
        ]
        return {**record, "words": words} if words else record

    def wav(self) -> bytes:
        """The bytes of a WAV file."""
        return wav_bytes(self.samples, self.rate)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a WAV file, complete or not at all.  Raises DataError if it cannot be written."""
        write_wav(Path(path), self.samples, self.rate)


def words_of_text(
    tokenizer: Tokenizer, pronouncer: Pronouncer | None, text: str, ids: Sequence[int]
) -> Iterator[tuple[str, int, int]]:
    """Each word of a text, with the first of its tokens and the number after the last."""
    plain = " ".join(text.split())
    if pronouncer is None:
        characters = token_spans(tokenizer, plain, ids)
        for start, end in word_places(plain):
            inside = [i for i, (a, b) in enumerate(characters) if a < end and b > start]
            if inside:
                yield plain[start:end], inside[0], inside[-1] + 1
        return
    first = 0
    borders = [i for i, name in enumerate(tokenizer.tokens(ids)) if name == BOUNDARY]
    for word, border in zip(pronouncer.words(plain), [*borders, len(ids)], strict=False):
        yield word, first, border
        first = border + 1
