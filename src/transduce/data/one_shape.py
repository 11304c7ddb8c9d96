"""Batches packed into rows of one shape, which a GPU computes without padding and can repeat.

All sequences of a side stand side by side in one row of a fixed number of positions.  The rest of
the row belongs to sequences of padding, none of which is longer than the longest of the data, so
that every position has finite values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.sequence import Borders, Padded, moved

MULTIPLE = 64
"""Positions of a row are a multiple of this, as matrix products on a GPU prefer."""


class Packed(NamedTuple):
    """A batch in rows of one shape.

    sides: packed rows (1, n, …).  parts: other tensors, each of the same shape in every batch.
    """

    sides: tuple[Padded, ...]
    parts: tuple[Tensor, ...]
    target_tokens: int

    def to(self, device: torch.device | str) -> Packed:
        """The same on another device."""
        sides = tuple(side.to(device) for side in self.sides)
        return Packed(sides, tuple(moved(x, device) for x in self.parts), self.target_tokens)


class OneShape:
    """Packs batches of one or more sides, sequence i of each belonging together.

    The shape grows where a batch does not fit, and stays.
    """

    def __init__(self, positions: Sequence[int], longest: Sequence[int], sequences: int) -> None:
        """positions: of the row of each side.  longest: positions of the longest sequence of each
        side.  sequences: most in a batch."""
        self.longest = [max(1, n) for n in longest]
        self.positions = [_multiple(max(n)) for n in zip(positions, self.longest, strict=True)]
        self.sequences = sequences

    def pack(self, *sides: Padded) -> list[Padded]:
        """Rows (b, t, …) of each side, the first of the shape, as one row (1, n, …), on the CPU."""
        lengths = [_lengths(side) for side in sides]
        for i, of_side in enumerate(lengths):
            self.longest[i] = max(self.longest[i], int(of_side.max()))
            self.positions[i] = _multiple(max(self.positions[i], int(of_side.sum())))
        self.sequences = max(self.sequences, *map(len, lengths))
        shapes = list(zip(self.positions, self.longest, strict=True))
        room = self.sequences + max(-(-n // most) for n, most in shapes)
        packed = zip(sides, lengths, shapes, strict=False)
        return [_row(side, of_side, *shape, room) for side, of_side, shape in packed]


def beside(ids: Padded, labels: Tensor) -> Padded:
    """Ids (b, t) or (b, t, k) with a label (b, t) each, the last of (b, t, 1 + k)."""
    return ids.with_values(torch.cat([ids.values.view(*labels.shape, -1), labels[..., None]], -1))


def parted(row: Padded) -> tuple[Padded, Tensor]:
    """Ids and labels that were packed `beside` each other."""
    ids, labels = row.values[..., :-1], row.values[..., -1]
    return row.with_values(ids.squeeze(-1).contiguous()), labels.contiguous()


def filled(x: Tensor, n: int, filling: float = 0) -> Tensor:
    """(b, …) -> (n, …)."""
    return torch.cat([x, x.new_full((n - len(x), *x.shape[1:]), filling)])


def of_each(row: Padded, labels: Tensor, filling: int = -1) -> Tensor:
    """Labels (b, …) of the sequences of a packed row, filled for those of padding."""
    assert row.borders is not None
    return filled(labels, len(row.borders.starts) - 1, filling)


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
    counts = torch.cat([lengths, rest, rest.new_zeros(room - len(lengths) - len(rest))])
    starts = torch.zeros(room + 1, dtype=torch.int32)
    starts[1:] = counts.cumsum(0)
    real = torch.arange(positions) < n
    packed = torch.arange(room).repeat_interleave(counts)
    borders = Borders(starts, longest)
    return Padded(values[None], real[None], "right", packed[None], borders)
