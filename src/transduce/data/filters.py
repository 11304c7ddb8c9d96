"""Filters of training pairs, with a count of each reason."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from transduce.config import section

Pair = tuple[str, str]


@section
class FilterConfig:
    """Which pairs are left out.  Pairs with an empty or blank side always are."""

    max_length: Annotated[int, Field(ge=1)] = 256
    """Most tokens on either side, not counting those that mark begin and end."""
    max_ratio: Annotated[float, Field(ge=0)] = 0.0
    """Most tokens of one side per token of the other; 0 for no such limit, as for summaries.
    For translations, 9 is a customary sieve for lines that do not belong together."""
    drop_duplicates: bool = True
    """Keep only the first of pairs that are equal on both sides."""


@dataclass
class FilterReport:
    """How many pairs were read, kept, and left out for each reason (the first that applied)."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    too_long: int = 0
    ratio: int = 0
    duplicate: int = 0

    def __str__(self) -> str:
        return (
            f"{self.read} pairs read, {self.kept} kept, {self.empty} empty, "
            f"{self.too_long} too long, {self.ratio} of uneven length, "
            f"{self.duplicate} duplicates"
        )


class PairFilter:
    """Sieves pairs: once by their texts, once by their token counts; counts in `report`."""

    def __init__(
        self,
        config: FilterConfig,
        report: FilterReport | None = None,
        seen: NDArray[np.uint64] | None = None,
    ) -> None:
        """report, seen: what one has counted, and `passed`, that this one goes on from."""
        self.config = config
        self.report = report or FilterReport()
        self._seen = _SeenHashes(seen)

    def by_text(self, read: int, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """(n,) True for the pairs, of those with text on both sides, that were not seen before.

        read: pairs that these n are the ones with text of.  hashes: (n,) by `hash_of`.
        """
        self.report.read += read
        self.report.empty += read - len(hashes)
        if not self.config.drop_duplicates:
            return np.ones(len(hashes), dtype=bool)
        fresh = self._seen.add(hashes)
        self.report.duplicate += len(hashes) - int(fresh.sum())
        return fresh

    def by_length(
        self, source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """(n,) True for pairs to keep, from the token counts (n,) of their two sides."""
        shorter = np.minimum(source_lengths, target_lengths)
        longer = np.maximum(source_lengths, target_lengths)
        empty = shorter == 0
        too_long = ~empty & (longer > self.config.max_length)
        kept: NDArray[np.bool_] = ~empty & ~too_long
        if self.config.max_ratio:
            uneven = kept & (longer > self.config.max_ratio * shorter)
            self.report.ratio += int(uneven.sum())
            kept &= ~uneven
        self.report.empty += int(empty.sum())
        self.report.too_long += int(too_long.sum())
        self.report.kept += int(kept.sum())
        return kept


class _SeenHashes:
    """A set of 64-bit hashes, as sorted arrays that are merged when they are of like size.

    A Python set would take some ten times the memory, which for tens of millions of pairs is
    gigabytes.
    """

    def __init__(self, hashes: NDArray[np.uint64] | None = None) -> None:
        self._levels = [] if hashes is None or not len(hashes) else [np.sort(hashes)]

    def add(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """(n,) True where a hash was new; its repetitions within the array are not."""
        unique, first = np.unique(hashes, return_index=True)
        new = np.ones(len(unique), dtype=bool)
        for level in self._levels:
            position = np.minimum(np.searchsorted(level, unique), len(level) - 1)
            new &= level[position] != unique
        added = unique[new]
        if len(added):
            while self._levels and len(self._levels[-1]) <= 2 * len(added):
                added = np.concatenate([self._levels.pop(), added])
            added.sort()
            self._levels.append(added)
        fresh = np.zeros(len(hashes), dtype=bool)
        fresh[first[new]] = True
        return fresh


def has_text(pair: Pair) -> bool:
    """Whether neither side is blank."""
    return bool(pair[0].strip() and pair[1].strip())


def hash_of(pair: Pair) -> int:
    """64 bits that equal pairs share, and hardly any others."""
    source, target = pair[0].encode(), pair[1].encode()
    # The length keeps ("ab", "c") apart from ("a", "bc").
    digest = hashlib.blake2b(b"%d:" % len(source) + source + target, digest_size=8)
    return int.from_bytes(digest.digest(), "little")
