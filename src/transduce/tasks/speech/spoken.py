"""Speech of a text: frames, and samples made of them."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
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
MOST_CHARACTERS = 300
"""Characters of a text that are spoken at once."""
CUTS = tuple(
    map(re.compile, (r"[.!?…][\"'”’)\]]*\s|[。！？…][”’」』）]*", r"[,;:]\s|[，；：、]", r"\s"))
)
"""Ends of sentences, of clauses and of words."""


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
    attended: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long), repr=False)
    """(steps) token of the largest weight at each."""
    ends: tuple[int, ...] = field(default=(), repr=False)
    """Tokens up to the end of each block of the text, the ends included."""
    words: tuple[SpokenWord, ...] = field(default=(), repr=False)
    """Words with their times, by a model of durations."""
    rounds: int = 60
    """Iterations of Griffin-Lim."""
    seed: int = 0
    speaker: str = ""
    """Of a run with several."""

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
        """True if attention reached the last token of each block of the text, or its end."""
        tokens = set(self.attended.tolist())
        return all(end - 1 in tokens or end - 2 in tokens for end in self.ends)

    @property
    def coverage(self) -> float:
        """Share of the tokens that got the largest weight of some step, as a percentage."""
        return 100 * len(set(self.attended.tolist())) / self.ends[-1] if self.ends else 100.0

    @property
    def monotony(self) -> float:
        """Share of the steps that attend no further back than the step before, as a percentage."""
        forward = self.attended.diff() >= 0
        return 100 * float(forward.float().mean()) if len(forward) else 100.0

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
            **({"speaker": self.speaker} if self.speaker else {}),
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


def blocks_of(text: str) -> Iterator[str]:
    """Parts of a text to speak one by one, cut after sentences, clauses or words; none if blank."""
    text, start = " ".join(text.split()), 0
    while len(text) - start > MOST_CHARACTERS:
        half, most = start + MOST_CHARACTERS // 2, start + MOST_CHARACTERS
        ends = ([cut.end() for cut in pattern.finditer(text, half, most)] for pattern in CUTS)
        end = next((places[-1] for places in ends if places), most)
        yield text[start:end].strip()
        start = end
    if start < len(text):
        yield text[start:]


def joined(blocks: Sequence[Speech]) -> Speech:
    """Speech of a text from that of its blocks, one or more."""
    first, n_frames, n_tokens = blocks[0], 0, 0
    attended, ends, words = [], list[int](), list[SpokenWord]()
    for block in blocks:
        begin = n_frames * first.features.seconds
        words += (SpokenWord(text, begin + a, begin + b) for text, a, b in block.words)
        attended.append(block.attended + n_tokens)
        ends += (n_tokens + end for end in block.ends)
        n_frames, n_tokens = n_frames + len(block.frames), ends[-1]
    return replace(
        first,
        frames=torch.cat([block.frames for block in blocks]),
        stopped=all(block.stopped for block in blocks),
        attended=torch.cat(attended),
        ends=tuple(ends),
        words=tuple(words),
    )


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
