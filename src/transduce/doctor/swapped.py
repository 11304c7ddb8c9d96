"""Pairs whose sides stand in the wrong order, by the trigrams of both."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transduce.data.filters import Pair
from transduce.doctor.language import ONE_SIDE, Trigrams

ROUNDS = 3
BEGINNING = 4
"""Part of a sample, at its beginning, whose order is the right one."""
TRIED = 4_000
FEW = 0.005
"""Share of a sample, at least, that is in the other order, to look for such pairs."""


class Order:
    """Trigrams of source and target of a sample, and the order of the sides of a pair.

    The first pairs are taken as source and target; both sides are then learnt from all pairs, each
    in the order that fits better.
    """

    def __init__(self, sample: Sequence[Pair]) -> None:
        pairs = sample[:: max(1, len(sample) // TRIED)]
        self._learn(pairs[: max(len(pairs) // BEGINNING, 1)])
        for _ in range(ROUNDS):
            self._learn([pair[::-1] if self.is_swapped(pair) else pair for pair in pairs])
        fits = [self._fit(pair) for pair in pairs]
        apart = bool(fits) and float(np.median(np.abs(fits))) >= 2 * ONE_SIDE
        share = float(np.mean([self.is_swapped(pair) for pair in pairs])) if apart else 0.0
        self.found = share >= FEW

    def _learn(self, pairs: Sequence[Pair]) -> None:
        self._sides = [Trigrams([pair[side] for pair in pairs]) for side in (0, 1)]

    def _fit(self, pair: Pair) -> float:
        """Nats a letter by which a pair fits its order better than the other, of both sides."""
        source, target = self._sides
        return source.fit(pair[0]) - target.fit(pair[0]) + target.fit(pair[1]) - source.fit(pair[1])

    def is_swapped(self, pair: Pair) -> bool:
        """True for a pair that looks like target and source."""
        return self._fit(pair) <= -ONE_SIDE
