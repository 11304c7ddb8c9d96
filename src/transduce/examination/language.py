"""Languages, scripts and words of both sides, learnt from a sample, and pairs whose sides are
swapped.

IBM model 1 (Brown et al. 1993) in both directions over the first letters of words, and single
characters of scripts without spaces.  Support is the log-likelihood ratio of each side given the
other against the side alone, in nats: below zero for sides that have nothing to do with each other.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.encoded import Pair
from transduce.data.lexicon import Cells, expectation_maximisation, parts_by_cells
from transduce.text.languages import Detector
from transduce.text.scripts import UNSPACED, script_of

TABLE = 1 << 20
"""Counts of trigrams, by hash; of bigrams a sixteenth."""
DETECTED = 6_000
"""Texts of each side whose language is detected, to learn it."""
UNUSUAL = ((2.0, 90.0), (3.0, 20.0), (4.0, 0.0))
"""Deviations below the usual trigrams, and the confidence of another language in percent: both are
needed."""
LEAST_LETTERS = 6
FOREIGN = 0.5
"""Share of letters of a script that a side does not use, to be reported."""
RARE = 0.01
"""Share of the letters of a side, below which it does not use a script."""
ONE_SIDE = 0.4
"""Nats a letter by which a text fits one side better than the other."""
BINS = 8
LEAST_SPREAD = 0.1


class Trigrams:
    """Letters by the two before them, counted in texts of one language."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._three = np.zeros(TABLE, np.float32)
        self._two = np.zeros(TABLE // 16, np.float32)
        for text in texts:
            two, three = _hashes(text)
            np.add.at(self._three, three, 1)
            np.add.at(self._two, two, 1)

    def fit(self, text: str) -> float:
        """Mean log-probability of a letter of a text, smoothed."""
        two, three = _hashes(text)
        if not len(three):
            return 0.0
        return float(np.log((self._three[three] + 0.05) / (self._two[two] + 5.0)).mean())


def _hashes(text: str) -> tuple[Any, Any]:
    letters = "".join(c if c.isalpha() else " " for c in text.casefold())
    plain = " ".join(letters.split())
    codes = np.frombuffer(f"  {plain} ".encode("utf-32-le"), np.uint32).astype(np.uint64)
    two = codes[:-2] * np.uint64(0x9E3779B1) + codes[1:-1] * np.uint64(0x85EBCA77)
    three = two * np.uint64(31) + codes[2:] * np.uint64(0xC2B2AE3D)
    return (two >> np.uint64(8)) % np.uint64(TABLE // 16), (three >> np.uint64(8)) % np.uint64(
        TABLE
    )


def _scripts(text: str) -> Counter[str]:
    return Counter(script_of(character) for character in text if character.isalpha())


class CorpusSide:
    """Language, scripts and trigrams of a side."""

    def __init__(self, texts: Sequence[str], detector: Detector | None) -> None:
        scripts: Counter[str] = Counter()
        for text in texts:
            scripts.update(_scripts(text))
        total = max(scripts.total(), 1)
        self._scripts = {name for name, count in scripts.items() if count >= RARE * total}
        self._main_script = scripts.most_common(1)[0][0] if scripts else ""
        self.language = ""
        self._detector = detector
        typical = list(texts)
        if detector is not None:
            typical = typical[:: max(1, len(typical) // DETECTED)]
            labels = [detector.detect(text)[0] for text in typical]
            votes: Counter[str] = Counter()
            for (label, confidence), text in zip(labels, typical, strict=True):
                votes[label] += int(confidence * len(text))
            self.language = votes.most_common(1)[0][0] if votes else ""
            typical = [
                text
                for text, label in zip(typical, labels, strict=True)
                if label[0] == self.language or label[1] < 50
            ]
        self.trigrams = Trigrams(typical)
        self._measure(typical)

    def _measure(self, texts: Sequence[str]) -> None:
        """Median and spread of the fit of typical texts, by length."""
        fits = np.array([self.trigrams.fit(text) for text in texts] or [0.0])
        lengths = np.array([sum(map(str.isalpha, text)) for text in texts] or [0])
        self._edges = np.quantile(lengths, np.linspace(0, 1, BINS + 1)[1:-1])
        bins = np.searchsorted(self._edges, lengths)
        self._usual = np.zeros((BINS, 2))
        for number in range(BINS):
            inside = fits[bins == number] if (bins == number).any() else fits
            median = np.median(inside)
            spread = 1.4826 * float(np.median(np.abs(inside - median)))
            self._usual[number] = median, max(spread, LEAST_SPREAD)

    def foreign(self, text: str) -> str | None:
        """Other script or language of a text of this side."""
        scripts = _scripts(text)
        letters = scripts.total()
        for name, count in scripts.most_common(1):
            if letters >= 3 and name not in self._scripts and count >= FOREIGN * letters:
                return f"script {name.title()} for {self._main_script.title()}"
        if self._detector is None or letters < LEAST_LETTERS or _is_name(text):
            return None
        median, spread = self._usual[np.searchsorted(self._edges, letters)]
        deviations = (median - self.trigrams.fit(text)) / spread
        needed = [confidence for least, confidence in UNUSUAL if deviations >= least]
        if not needed:  # the detector takes ten times as long
            return None
        label, confidence = self._detector.detect(text)[0]
        if label == self.language or confidence < min(needed):
            return None
        return f"{label} for {self.language}"


def _is_name(text: str) -> bool:
    """True for a word, and for words with capital letters alone."""
    words = [word for word in text.split() if word[0].isalpha()]
    return (len(words) < 2 and text.isascii()) or all(word[0].isupper() for word in words)


def is_of_a_side(text: str, sides: Sequence[CorpusSide]) -> bool:
    """True for a text whose letters fit one side clearly better than the other."""
    source, target = (side.trigrams.fit(text) for side in sides)
    return abs(source - target) >= ONE_SIDE


STEM = 5
"""Letters of a word that count."""
WORDS = 60
"""Words of a side that count."""
SEEN = 3
"""Pairs with a word, at least, to learn it."""
LEXICON_ROUNDS = 4
CELLS = 1 << 20
"""Cells in work at a time, to bound the memory."""
ALONE = 0.3
"""Share of the probability of a word without the other side."""
SHARED = 2.5
"""Nats for a word that no lexicon has, and both sides."""
MANY = 0.1
"""Share of pairs that tell of a task, at least."""
_UNSPACED = "".join(f"{low}-{high}" for low, high in UNSPACED)
_WORDS = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")

Ints = NDArray[np.int64]


def text_words(text: str) -> list[str]:
    """Beginnings of different words, in their order."""
    stems = (sys.intern(word[:STEM]) for word in _WORDS.findall(text.casefold()))
    return list(dict.fromkeys(stems))[:WORDS]


def copied_pairs(sample: Sequence[Pair]) -> int:
    """Number of pairs with most of their target's words in the source, of a task whose equal sides
    are no fault, else 0: those that differ are the few, or have most of these words in the source;
    or many are equal, in words that targets of the others have more often than sources, as numbers
    to be written out have."""
    words = [_words(pair) for pair in sample if pair[0].split() != pair[1].split()]
    shared = [len({*source} & {*target}) for source, target in words]
    sources, targets = (Counter(word for pair in words for word in pair[side]) for side in (0, 1))
    equal = [text_words(pair[0]) for pair in sample if pair[0].split() == pair[1].split()]
    written = [targets[word] > sources[word] for text in equal for word in text]
    is_copying = (
        len(words) <= MANY * len(sample)
        or 0 < targets.total() <= 2 * sum(shared)
        or (len(equal) >= MANY * len(sample) and 0 < len(written) <= 2 * sum(written))
    )
    most = sum(0 < len(target) <= 2 * n for n, (_, target) in zip(shared, words, strict=True))
    return len(equal) + most if is_copying else 0


class _Direction(NamedTuple):
    """Ratios p(target | source) / p(target) of words; keys: source number · size + target number,
    ascending.  Number 0 is no word."""

    size: int
    keys: Ints
    ratios: NDArray[np.float64]

    def support(self, source: Sequence[int], target: Sequence[int]) -> float:
        """Sum over the target words of the log of their ratio."""
        if not target or not source:
            return 0.0
        numbers = np.array([0, *source], np.int64)
        keys = numbers[:, None] * self.size + np.array(target, np.int64)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        ratios = np.where(self.keys[places] == keys, self.ratios[places], 0.0)
        return float(np.log(ALONE + (1 - ALONE) * ratios.mean(axis=0)).sum())


class WordLexicon:
    """Words of both sides and their ratios, from pairs of words."""

    def __init__(self, pairs: Iterable[tuple[list[str], list[str]]]) -> None:
        rows = list(pairs)
        self._numbers = [_numbered(row[side] for row in rows) for side in (0, 1)]
        known = [tuple(self._known(row[side], side) for side in (0, 1)) for row in rows]
        sizes = [len(numbers) + 1 for numbers in self._numbers]
        self._forward = _learn([(s, t) for s, t in known if s and t], sizes[1])
        self._backward = _learn([(t, s) for s, t in known if s and t], sizes[0])

    def support(self, words: tuple[list[str], list[str]]) -> float:
        """Nats in favour of a pair, given its words."""
        source, target = (self._known(words[side], side) for side in (0, 1))
        forward = self._forward.support(source, target)
        backward = self._backward.support(target, source)
        return forward + backward + SHARED * self._shared(words)

    def _known(self, words: list[str], side: int) -> list[int]:
        numbers = self._numbers[side]
        return [numbers[word] for word in words if word in numbers]

    def _shared(self, words: tuple[list[str], list[str]]) -> int:
        both = set(words[0]) & set(words[1])
        return sum(word not in self._numbers[1] for word in both)


def _numbered(rows: Iterable[list[str]]) -> dict[str, int]:
    counts = Counter(word for row in rows for word in row)
    frequent = [word for word, count in counts.most_common() if count >= SEEN]
    return {word: number for number, word in enumerate(frequent, 1)}


def _learn(rows: Sequence[tuple[list[int], list[int]]], size: int) -> _Direction:
    """Probabilities by EM; cells are the target words of each row times its source words."""
    if not rows:
        return _Direction(size, np.zeros(1, np.int64), np.zeros(1))
    n_cells = np.array([(len(source) + 1) * len(target) for source, target in rows])
    keys_of_chunks, chunks, counts = [], [], np.zeros(size, np.int64)
    for part in (rows[span] for span in parts_by_cells(n_cells, CELLS)):
        keys, cells = np.unique(_keys(part, size), return_inverse=True)
        widths = np.repeat([len(s) + 1 for s, _ in part], [len(t) for _, t in part])
        keys_of_chunks.append(keys)
        chunks.append(Cells(cells.astype(np.int32), 1.0, np.cumsum(widths) - widths, widths))
        counts += np.bincount(np.concatenate([t for _, t in part]), minlength=size)
    known = np.unique(np.concatenate(keys_of_chunks))
    for number, keys in enumerate(keys_of_chunks):
        places = np.searchsorted(known, keys).astype(np.int32)
        chunks[number] = chunks[number]._replace(keys=places[chunks[number].keys])
    probabilities = expectation_maximisation(
        chunks, known // size, np.ones(len(known)), LEXICON_ROUNDS
    )
    alone = np.maximum(counts, 1) / counts.sum()
    return _Direction(size, known, probabilities / alone[known % size])


def _keys(rows: Sequence[tuple[list[int], list[int]]], size: int) -> Ints:
    """Keys of the cells of some rows."""
    numbers = ((np.array([0, *s], np.int64) * size, np.array(t, np.int64)) for s, t in rows)
    return np.concatenate([(target[:, None] + source).ravel() for source, target in numbers])


class Support:
    """Support of pairs; those of the sample by a lexicon of the other half alone."""

    def __init__(self, sample: Sequence[Pair]) -> None:
        words = list(map(_words, sample))
        self._halves = [WordLexicon(words[half::2]) for half in (0, 1)]

    def of_all(self, pairs: Sequence[Pair]) -> list[float]:
        """Nats in favour of each pair: the less of both halves, one of which has not seen it."""
        return [min(half.support(words) for half in self._halves) for words in map(_words, pairs)]

    def of_strangers(self, pairs: Sequence[Pair]) -> list[float]:
        """The same for pairs that no half has seen, by one of them."""
        return [self._halves[0].support(_words(pair)) for pair in pairs]


def _words(pair: Pair) -> tuple[list[str], list[str]]:
    return text_words(pair[0]), text_words(pair[1])


SWAPPED_ROUNDS = 3
BEGINNING = 4
"""Part of a sample, at its beginning, whose order is the right one."""
TRIED = 4_000
FEW = 0.005
"""Share of a sample, at least, that is in the other order, to look for such pairs."""


class SideOrder:
    """Trigrams of source and target of a sample, and the order of the sides of a pair.

    The first pairs are taken as source and target; both sides are then learnt from all pairs, each
    in the order that fits better.
    """

    def __init__(self, sample: Sequence[Pair]) -> None:
        pairs = sample[:: max(1, len(sample) // TRIED)]
        self._learn(pairs[: max(len(pairs) // BEGINNING, 1)])
        for _ in range(SWAPPED_ROUNDS):
            self._learn([pair[::-1] if self.is_swapped(pair) else pair for pair in pairs])
        fits = [self._fit(pair) for pair in pairs]
        apart = bool(fits) and float(np.median(np.abs(fits))) >= 2 * ONE_SIDE
        share = float(np.mean([self.is_swapped(pair) for pair in pairs])) if apart else 0.0
        self.has_swapped = share >= FEW

    def _learn(self, pairs: Sequence[Pair]) -> None:
        self._sides = [Trigrams([pair[side] for pair in pairs]) for side in (0, 1)]

    def _fit(self, pair: Pair) -> float:
        """Nats a letter by which a pair fits its order better than the other, of both sides."""
        source, target = self._sides
        return source.fit(pair[0]) - target.fit(pair[0]) + target.fit(pair[1]) - source.fit(pair[1])

    def is_swapped(self, pair: Pair) -> bool:
        """True for a pair that looks like target and source."""
        return self._fit(pair) <= -ONE_SIDE
