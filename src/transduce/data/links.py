"""Links between the tokens of each training pair, as ragged rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
LAST = 2**15 - 1
"""Last token position that a link can have."""


class BatchLinks(NamedTuple):
    """Links of the rows of a batch, (l,) each; a weight is 1 over the links of its target token."""

    rows: Ints
    targets: Ints
    sources: Ints
    shares: NDArray[np.float32]


class LinkRows(NamedTuple):
    """Links of n pairs; pair i has links offsets[i] to offsets[i + 1], token positions (l,)
    int16."""

    offsets: Ints
    sources: Ints
    targets: Ints

    @staticmethod
    def of(pairs: Iterable[Iterable[tuple[int, int]]]) -> LinkRows:
        """Build from the (source, target) links of each pair, without links beyond `LAST`."""
        counts, places = [0], []
        for links in pairs:
            storable = sorted(link for link in links if max(link) <= LAST)
            counts.append(len(storable))
            places.append(np.array(storable, np.int16).reshape(-1, 2))
        every = np.concatenate(places) if places else np.empty((0, 2), np.int16)
        return LinkRows(np.cumsum(counts), every[:, 0].copy(), every[:, 1].copy())

    def __repr__(self) -> str:
        return f"LinkRows of {len(self.offsets) - 1} pairs"

    def batch(self, rows: Ints) -> BatchLinks:
        """Links of some pairs; pairs beyond the last have none."""
        inside = np.minimum(rows, len(self.offsets) - 2)
        sizes = np.where(inside == rows, np.diff(self.offsets)[inside], 0)
        row = np.repeat(np.arange(len(rows)), sizes)
        within = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        at = self.offsets[inside][row] + within
        targets = self.targets[at].astype(np.int64)
        token = row * (LAST + 1) + targets
        _, group, count = np.unique(token, return_inverse=True, return_counts=True)
        shares = (1 / count[group]).astype(np.float32)
        return BatchLinks(row, targets, self.sources[at].astype(np.int64), shares)
