"""Combine corpora of pairs, each repeated in an epoch by its weight.

Adapting a general model to a domain needs both corpora at once, since training on the domain alone
forgets the rest (Chu et al. 2017); synthetic pairs are balanced against real pairs in the same way
(Edunov et al. 2018).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transduce.data.encoded import EncodedPairs
from transduce.errors import DataError

Ints = NDArray[np.integer[Any]]


class MixedPairs:
    """Encoded pairs of several corpora, numbered from the first to the last.  Lengths are (n,)
    int32."""

    def __init__(self, parts: Sequence[EncodedPairs], weights: Sequence[float]) -> None:
        """weights: repetitions of each corpus per epoch.  Raises DataError if an epoch could be
        empty."""
        assert len(parts) == len(weights) > 0
        self.parts = parts
        self.weights = weights
        sizes = [len(part.source_lengths) for part in parts]
        if all(_exactly(w) * size < 1 for w, size in zip(weights, sizes, strict=True)):
            raise DataError(
                f"weights {list(weights)} for corpora of {sizes} pairs give an empty epoch; "
                "raise data.train_weight, or a weight in data.mix"
            )
        self._firsts = np.concatenate([[0], np.cumsum(sizes)])
        self.source_lengths = np.concatenate([part.source_lengths for part in parts])
        self.target_lengths = np.concatenate([part.target_lengths for part in parts])

    def __len__(self) -> int:
        return len(self.source_lengths)

    def epoch(self, number: int, seed: int) -> NDArray[np.int64]:
        """Indices of the pairs of an epoch, with repetitions.

        Each corpus is passed in a random order after the other, and an epoch continues where the
        last stopped, so over several epochs all pairs are seen equally often.
        """
        drawn = []
        for corpus, (part, weight) in enumerate(zip(self.parts, self.weights, strict=True)):
            size = len(part.source_lengths)
            share = _exactly(weight) * size
            begin, end = (math.floor(turn * share) for turn in (number, number + 1))
            for turn in range(begin // size, -(-end // size)):
                low, high = max(begin - turn * size, 0), min(end - turn * size, size)
                rows = np.arange(size)
                if high - low < size:  # of a whole turn the order does not matter
                    sequence = np.random.SeedSequence([seed], spawn_key=(corpus, turn))
                    rows = np.random.default_rng(sequence).permutation(size)[low:high]
                drawn.append(rows + self._firsts[corpus])
        return np.concatenate(drawn)

    def gather(
        self, side: Literal["source", "target"], rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], Ints, Ints]:
        """Ids of some pairs on a side, with starts and lengths (b,) of their rows."""
        lengths = (self.source_lengths if side == "source" else self.target_lengths)[rows]
        ends = np.cumsum(lengths, dtype=np.int64)
        tokens = np.empty(ends[-1], dtype=np.int64)
        starts = ends - lengths
        corpus = np.searchsorted(self._firsts, rows, side="right") - 1
        for number, part in enumerate(self.parts):
            mine = corpus == number
            part_rows = rows[mine] - self._firsts[number]
            if side == "source":
                ids, offsets = part.source_tokens, part.source_offsets
            else:
                ids, offsets = part.target_tokens, part.target_offsets
            tokens[_spans(starts[mine], lengths[mine])] = ids[
                _spans(offsets[part_rows], lengths[mine])
            ]
        return tokens, starts, lengths


def _exactly(weight: float) -> Fraction:
    """Recover 1 / 3 from 0.333…: in floats 29 · 0.01 · 100 is less than 29, and an epoch empty."""
    return Fraction(weight).limit_denominator(10**9)


def _spans(starts: Ints, lengths: Ints) -> Ints:
    """(sum of lengths,) the numbers start, start + 1, … of some rows, row after row."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    within: Ints = np.arange(total) - np.repeat(ends - lengths, lengths)
    return within + np.repeat(starts, lengths)


def as_mixed(pairs: EncodedPairs | MixedPairs) -> MixedPairs:
    """A single corpus as a mixture; a mixture unchanged."""
    return pairs if isinstance(pairs, MixedPairs) else MixedPairs([pairs], [1.0])
