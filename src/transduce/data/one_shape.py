"""Batches packed into rows of one shape, which a GPU computes without padding and can repeat.

All sequences of a side stand side by side in one row of a fixed number of positions.  The rest of
the row belongs to sequences of padding, none of which is longer than the longest of the data, so
that every position has finite values.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.sequence import Borders, Padded

MULTIPLE = 64
"""Positions of a row are a multiple of this, as matrix products on a GPU prefer."""


class OneShape:
    """Packs batches of one or more sides, sequence i of each belonging together.

    The shape grows where a batch does not fit, and stays.
    """

    def __init__(self, positions: int, longest: Sequence[int], sequences: int) -> None:
        """positions: of the row of a side.  longest: positions of the longest sequence of each
        side.  sequences: most in a batch."""
        self.longest = list(longest)
        self._positions = [_multiple(max(positions, n)) for n in self.longest]
        self._sequences = sequences

    @staticmethod
    def of(widths: Sequence[NDArray[np.integer[Any]]], batch_tokens: int) -> OneShape:
        """Shape for batches of at most `batch_tokens` positions, padding included, on each side.

        widths: (n,) positions of each item, for each side.
        """
        wider = np.sort(functools.reduce(np.maximum, widths).astype(np.int64))
        fitting = np.flatnonzero(wider * np.arange(1, len(wider) + 1) <= batch_tokens)
        sequences = int(fitting[-1]) + 1 if len(fitting) else 1
        return OneShape(batch_tokens, [int(width.max()) for width in widths], sequences)

    def pack(self, *sides: Padded) -> list[Padded]:
        """Rows (b, t, …) of each side as one row (1, n, …), on the CPU."""
        lengths = [_lengths(side) for side in sides]
        for i, of_side in enumerate(lengths):
            self.longest[i] = max(self.longest[i], int(of_side.max()))
            self._positions[i] = _multiple(max(self._positions[i], int(of_side.sum())))
        self._sequences = max(self._sequences, *map(len, lengths))
        padding = max(-(-n // most) for n, most in zip(self._positions, self.longest, strict=True))
        room = self._sequences + padding
        shapes = zip(self._positions, self.longest, strict=True)
        packed = zip(sides, lengths, shapes, strict=True)
        return [_row(side, of_side, *shape, room) for side, of_side, shape in packed]


def beside(ids: Padded, labels: Tensor) -> Padded:
    """Ids (b, t) with a label each, (b, t, 2)."""
    return ids.with_values(torch.stack([ids.values, labels], -1))


def _multiple(n: int) -> int:
    return n + -n % MULTIPLE


def _lengths(side: Padded) -> Tensor:
    """(n,) positions of each sequence, row by row."""
    if side.packed is None:
        return side.lengths
    numbers = side.packed.flatten()[side.real.flatten()]
    lengths: Tensor = torch.unique_consecutive(numbers, return_counts=True)[1]
    return lengths


def _row(side: Padded, lengths: Tensor, positions: int, longest: int, room: int) -> Padded:
    """One row of `positions`, of at most `room` sequences."""
    n = int(lengths.sum())
    values = side.values.new_zeros(positions, *side.values.shape[2:])
    values[:n] = side.values.flatten(0, 1)[side.real.flatten()]
    rest = torch.arange(0, positions - n + longest, longest).clamp(max=positions - n).diff()
    of_each = torch.cat([lengths, rest, rest.new_zeros(room - len(lengths) - len(rest))])
    starts = torch.zeros(room + 1, dtype=torch.int32)
    starts[1:] = of_each.cumsum(0)
    real = torch.arange(positions) < n
    packed = torch.arange(room).repeat_interleave(of_each)
    borders = Borders(starts, longest)
    return Padded(values[None], real[None], "right", packed[None], borders)
