"""Lexicon of words of both sides, learnt from a sample, and the support that it gives a pair.

IBM model 1 (Brown et al. 1993) in both directions over the first letters of words, and single
characters of scripts without spaces.  Support is the log-likelihood ratio of each side given the
other against the side alone, in nats: below zero for sides that have nothing to do with each other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.filters import Pair
from transduce.data.lexicon import Cells, expectation_maximisation
from transduce.text.scripts import UNSPACED

STEM = 5
"""Letters of a word that count."""
WORDS = 60
"""Words of a side that count."""
SEEN = 3
"""Pairs with a word, at least, to learn it."""
ROUNDS = 4
ALONE = 0.3
"""Share of the probability of a word without the other side."""
SHARED = 2.5
"""Nats for a word that no lexicon has, and both sides."""
_UNSPACED = "".join(f"{low}-{high}" for low, high in UNSPACED)
_WORDS = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")

Ints = NDArray[np.int64]


def words_of(text: str) -> list[str]:
    """Beginnings of different words, in their order."""
    stems = (word[:STEM] for word in _WORDS.findall(text.casefold()))
    return list(dict.fromkeys(stems))[:WORDS]


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


class Lexicon:
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
    keys = np.concatenate([_cells(source, target, size) for source, target in rows])
    widths = np.repeat([len(s) + 1 for s, _ in rows], [len(t) for _, t in rows])
    starts = np.cumsum(widths) - widths
    counts = np.bincount(np.concatenate([np.array(t) for _, t in rows]), minlength=size)
    known, cells = np.unique(keys, return_inverse=True)
    probabilities = expectation_maximisation(
        [Cells(cells, 1.0, starts, widths)], known // size, np.ones(len(known)), ROUNDS
    )
    alone = np.maximum(counts, 1) / counts.sum()
    return _Direction(size, known, probabilities / alone[known % size])


def _cells(source: list[int], target: list[int], size: int) -> Any:
    numbers = np.array([0, *source], np.int64) * size
    return (np.array(target, np.int64)[:, None] + numbers).ravel()


class Support:
    """Support of pairs; those of the sample by a lexicon of the other half alone."""

    def __init__(self, sample: Sequence[Pair]) -> None:
        words = list(map(_words, sample))
        self._halves = [Lexicon(words[half::2]) for half in (0, 1)]

    def of_all(self, pairs: Sequence[Pair]) -> list[float]:
        """Nats in favour of each pair: the less of both halves, one of which has not seen it."""
        return [min(half.support(words) for half in self._halves) for words in map(_words, pairs)]

    def of_strangers(self, pairs: Sequence[Pair]) -> list[float]:
        """The same for pairs that no half has seen, by one of them."""
        return [self._halves[0].support(_words(pair)) for pair in pairs]


def _words(pair: Pair) -> tuple[list[str], list[str]]:
    return words_of(pair[0]), words_of(pair[1])
