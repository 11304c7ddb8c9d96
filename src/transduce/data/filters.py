"""Filters of training pairs, with a count of each reason."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transduce.data.filter_config import FilterConfig

Pair = tuple[str, str]


@dataclass
class FilterReport:
    """Number of pairs read, kept, and left out by reason (the first that applied)."""

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
    """Filter pairs by text, then by token counts; counts go to `report`."""

    def __init__(
        self,
        config: FilterConfig,
        report: FilterReport | None = None,
        hashes: NDArray[np.uint64] | None = None,
    ) -> None:
        """report, hashes: of an earlier filter to continue from."""
        self.config = config
        self.report = report or FilterReport()
        self._seen = _SeenHashes(hashes)

    def by_text(self, read: int, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """(n,) True for new pairs, by hashes (n,) of those with text on both sides among `read`
        pairs."""
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
        accepted: NDArray[np.bool_] = ~empty & ~too_long
        if self.config.max_ratio:
            uneven = accepted & (longer > self.config.max_ratio * shorter)
            self.report.ratio += int(uneven.sum())
            accepted &= ~uneven
        self.report.empty += int(empty.sum())
        self.report.too_long += int(too_long.sum())
        self.report.kept += int(accepted.sum())
        return accepted


class _SeenHashes:
    """Set of 64-bit hashes, as sorted arrays merged when of similar size.

    A Python set would need ten times the memory: gigabytes for tens of millions of pairs.
    """

    def __init__(self, hashes: NDArray[np.uint64] | None = None) -> None:
        self._levels = [] if hashes is None or not len(hashes) else [np.sort(hashes)]

    def add(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """(n,) True for new hashes; repetitions within the array are not new."""
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
    """True if neither side is blank."""
    return bool(pair[0].strip() and pair[1].strip())


def hash_of(pair: Pair) -> int:
    """64-bit hash of a pair; collisions are very unlikely."""
    source, target = pair[0].encode(), pair[1].encode()
    # The length keeps ("ab", "c") apart from ("a", "bc").
    digest = hashlib.blake2b(b"%d:" % len(source) + source + target, digest_size=8)
    return int.from_bytes(digest.digest(), "little")
