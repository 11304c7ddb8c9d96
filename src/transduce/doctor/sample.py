"""Sample of a corpus of any length: evenly spread pairs, at most so many, in one pass."""

from __future__ import annotations

from transduce.data.filters import Pair

PAIRS = 40_000
LETTERS = 300
"""Characters of each side that are kept: 60 MB at most."""


class Sample:
    """Every pair of a short corpus; of a longer one every second, fourth, ... pair."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self._step = 1
        self._read = 0

    def add(self, pair: Pair) -> None:
        """Keep the next pair, or not."""
        if self._read % self._step == 0:
            self.pairs.append((pair[0][:LETTERS], pair[1][:LETTERS]))
            if len(self.pairs) == 2 * PAIRS:
                del self.pairs[1::2]
                self._step *= 2
        self._read += 1
