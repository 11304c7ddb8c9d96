"""Speech of a text: its pronunciation, frames, and samples made of them.

Griffin and Lim (1984); Perraudin, Balazs and Søndergaard (2013).
"""

import functools
import itertools
import math
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

from transduce.errors import InputError, SettingError, printable_name
from transduce.speech.audio_files import wav_bytes, write_wav
from transduce.speech.features import Mel
from transduce.speech.segments import word_places
from transduce.tasks.recipe import auxiliary_run
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.tasks.translation.training import load_translation
from transduce.tasks.translation.translator import Translator
from transduce.text import UNK, Tokenizer
from transduce.text.offsets import token_spans

ROUNDS = 60
MOMENTUM = 0.99
SPOKEN_SMALLEST = 1e-6
MOST_FRAMES = 4000
"""Frames inverted together, so that memory does not grow with the length."""


def invert(frames: Tensor, features: Mel, rounds: int = ROUNDS, seed: int = 0) -> Tensor:
    """Samples (n,) with these log mel magnitudes (t, f): n = (t - 1) · hop, none for a single
    frame.  Long speech is cut at its quietest frames.

    features: of the frames.  rounds: iterations of Griffin-Lim.  seed: of the random phases.
    """
    if len(frames) < 2:
        return torch.zeros(0)
    frames = frames.detach().float().cpu()
    cuts = [0]
    while len(frames) - cuts[-1] > MOST_FRAMES:
        later = cuts[-1] + MOST_FRAMES // 2
        quietest = frames[later : later + MOST_FRAMES // 2 - 1].exp().sum(1).argmin()
        cuts.append(later + int(quietest))
    cuts.append(len(frames) - 1)
    inverse = torch.linalg.pinv(torch.from_numpy(features.filters))  # (bins of the transform, f)
    parts = [frames[start : end + 1] for start, end in itertools.pairwise(cuts)]
    return torch.cat([_inverted(part, inverse, features, rounds, seed) for part in parts])


def _inverted(frames: Tensor, inverse: Tensor, features: Mel, rounds: int, seed: int) -> Tensor:
    magnitudes = (inverse @ frames.T.exp()).clamp(min=SPOKEN_SMALLEST)  # (bins, t)
    generator = torch.Generator().manual_seed(seed)
    angles = 2 * math.pi * torch.rand(magnitudes.shape, generator=generator)
    phases = torch.polar(torch.ones_like(magnitudes), angles)
    before = torch.zeros_like(phases)
    for _ in range(rounds):
        again = _spectrum(_samples(magnitudes * phases, features), features)
        ahead = again - MOMENTUM / (1 + MOMENTUM) * before
        phases = ahead / (ahead.abs() + 1e-9)
        before = again
    return _samples(magnitudes * phases, features)


def _spectrum(samples: Tensor, features: Mel) -> Tensor:
    return torch.stft(
        samples,
        features.width,
        features.hop,
        window=torch.from_numpy(features.window),
        pad_mode="constant",  # a reflection needs more samples than two frames have
        return_complex=True,
    )


def _samples(spectrum: Tensor, features: Mel) -> Tensor:
    window = torch.from_numpy(features.window)
    return torch.istft(spectrum, features.width, features.hop, window=window)


BOUNDARY = "|"
"""Symbol between two words."""
_PARTS = re.compile(r"\w+(?:['\N{RIGHT SINGLE QUOTATION MARK}-]\w+)*|[^\w\s]")
"""Words, and signs between them."""


class Pronouncer:
    """Texts as symbols: the sounds of each word, a boundary between words, signs as they are.

    Words are translated in lower case, each once.
    """

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._sounds: dict[str, str] = {}

    def pronounce(self, texts: Sequence[str]) -> list[str]:
        """The symbols of each text, separated by spaces."""
        parts = [_PARTS.findall(text) for text in texts]
        words = {part.lower() for text in parts for part in text if _is_word(part)}
        new = sorted(words - self._sounds.keys())
        translations = self._translator.translate(new) if new else []
        self._sounds |= {
            word: translation.text for word, translation in zip(new, translations, strict=True)
        }
        return [self._joined(text) for text in parts]

    def knows(self, letter: str) -> bool:
        """True for a letter that the run reads."""
        return UNK not in self._translator.source.encode(letter.lower())

    def words(self, text: str) -> list[str]:
        """Words of a text, each with the signs after it; first any signs before them."""
        words: list[str] = []
        for part in _PARTS.findall(text):
            if _is_word(part) or not words:
                words.append(part)
            else:
                words[-1] += part
        return words

    def _joined(self, parts: Sequence[str]) -> str:
        symbols: list[str] = []
        for part in parts:
            if not _is_word(part):
                symbols.append(part)
                continue
            if symbols:
                symbols.append(BOUNDARY)
            symbols += self._sounds[part.lower()].split()
        return " ".join(symbols)


def load_pronouncer(run: str | None, device: str) -> Pronouncer | None:
    """The run of `text.pronounce`; None if unset. Raises RunError for a run of another task."""
    if run is None:
        return None
    path = Path(run)
    use = "; a run of the task 'translation' from words to their sounds is needed"
    settings = auxiliary_run(path, "text.pronounce", "translation", use)
    recipe = TranslationRecipe.parse(settings, str(path / "recipe.toml"))
    return Pronouncer(load_translation(recipe, path, device))


def _is_word(part: str) -> bool:
    return part[0].isalnum() or part[0] == "_"


Samples = NDArray[np.float32]
MOST_CHARACTERS = 300
"""Characters of a text that are spoken at once."""
CUTS = tuple(
    map(re.compile, (r"[.!?…][\"'”’)\]]*\s|[。！？…][”’」』）]*", r"[,;:]\s|[，；：、]", r"\s"))
)
"""Ends of sentences, of clauses and of words."""


class SeveralVoices:
    """Base of predictors that speak in the voice of one of their speakers, if they have any."""

    speakers: tuple[str, ...]
    speaker: str

    def number_of(self, speaker: str) -> int:
        """Number of a speaker, of the present one if blank; 0 of a run of a single voice.  Raises
        SettingError for an unknown one."""
        name = printable_name(speaker) or self.speaker
        if self.speakers and name not in self.speakers:
            known = ", ".join(map(repr, self.speakers))
            raise SettingError(f"speaker {name!r} is unknown; the run has {known}")
        return self.speakers.index(name) if self.speakers else 0

    def checked_number(self, speaker: str, number: int) -> int:
        """The same; raises InputError.  number: of the text, for messages."""
        try:
            return self.number_of(speaker)
        except SettingError as error:
            raise InputError(number, str(error)) from None


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
    of_vocoder: Samples | None = field(default=None, repr=False)
    """Samples of a voice with a vocoder of its own."""

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
        if self.of_vocoder is not None:
            return self.of_vocoder
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


def joined_speech(blocks: Sequence[Speech]) -> Speech:
    """Speech of a text from that of its blocks, one or more."""
    first, n_frames, n_tokens = blocks[0], 0, 0
    attended, ends, words = [], list[int](), list[SpokenWord]()
    for block in blocks:
        begin = n_frames * first.features.seconds
        words += (SpokenWord(text, begin + a, begin + b) for text, a, b in block.words)
        attended.append(block.attended + n_tokens)
        ends += (n_tokens + end for end in block.ends)
        n_frames, n_tokens = n_frames + len(block.frames), ends[-1]
    samples = [block.of_vocoder for block in blocks if block.of_vocoder is not None]
    return replace(
        first,
        of_vocoder=np.concatenate(samples) if samples else None,
        frames=torch.cat([block.frames for block in blocks]),
        stopped=all(block.stopped for block in blocks),
        attended=torch.cat(attended),
        ends=tuple(ends),
        words=tuple(words),
    )


def words_of_text(
    tokenizer: Tokenizer, pronouncer: Pronouncer | None, text: str, ids: Sequence[int]
) -> Iterator[tuple[str, int, int]]:
    """Each word of a text, with the first of its tokens and the number after the last.

    tokenizer: of the text.  pronouncer: None for a model of characters or pieces.  ids: tokens of
    the text.
    """
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
