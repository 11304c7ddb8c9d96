"""Sequences of unequal length, padded into a tensor: `Padded`.

Shape letters used throughout the package:

    b  rows of a batch (sentences, or hypotheses in a beam)
    t  positions in a sequence (targets and queries)
    s  positions in another attended sequence (sources, memory, keys)
    m  width of the model, `d_model`
    h  attention heads
    d  width of one head, m / h
    f  inner width of the feed-forward network, `d_ff`
    v  entries of the vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor


class Borders(NamedTuple):
    """Borders of sequences that stand side by side, for attention within each.

    starts:  (n + 1,) int32, the first position of each, counted over all rows, and the end of the
             last; a sequence may be empty.
    longest: bound of their lengths.
    """

    starts: Tensor
    longest: int


class Padded(NamedTuple):
    """A batch of sequences of unequal length.

    values:  (b, t, ...) token ids or vectors, arbitrary at padding.
    real:    (b, t) bool, True where the position is not padding.
    padding: possible places of padding, known from the lengths without reading the tensors:
             "none", "right", or "any".  It decides if attention can do without a mask;
             "any" is always safe.
    packed:  (b, t) ints: for several sequences in one row, the index of each position's sequence,
             each sequence in one piece; None if each row is one sequence.
    borders: the same as offsets, where attention is to go by them; then padding belongs to
             sequences as well.
    """

    values: Tensor
    real: Tensor
    padding: Literal["none", "right", "any"] = "any"
    packed: Tensor | None = None
    borders: Borders | None = None

    def with_values(self, values: Tensor) -> Padded:
        """The same padding around other values."""
        return self._replace(values=values)

    def select(self, rows: Tensor | slice) -> Padded:
        """Rows by index, in the given order, without borders."""
        packed = None if self.packed is None else self.packed[rows]
        return Padded(self.values[rows], self.real[rows], self.padding, packed)

    def to(self, device: torch.device | str) -> Padded:
        """The same batch on another device."""
        packed = None if self.packed is None else moved(self.packed, device)
        borders = self.borders
        if borders is not None:
            borders = borders._replace(starts=moved(borders.starts, device))
        values, real = moved(self.values, device), moved(self.real, device)
        return Padded(values, real, self.padding, packed, borders)

    @property
    def lengths(self) -> Tensor:
        """(b,) number of real positions in each row."""
        return self.real.sum(1)

    @staticmethod
    def unpadded(values: Tensor) -> Padded:
        """A batch without padding, from values (b, t, ...)."""
        real = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device)
        return Padded(values, real, "none")

    @staticmethod
    def from_rows(rows: Sequence[Sequence[int]], padding: int = 0) -> Padded:
        """Pad lists of token ids on the right.  At least one row, each of at least one id."""
        lengths = torch.tensor([len(row) for row in rows])
        longest = int(lengths.max())
        values = torch.full((len(rows), longest), padding, dtype=torch.long)
        for i, row in enumerate(rows):
            values[i, : len(row)] = torch.tensor(row, dtype=torch.long)
        real = torch.arange(longest)[None, :] < lengths[:, None]
        return Padded(values, real, "none" if bool((lengths == longest).all()) else "right")

    @staticmethod
    def left_padded(rows: Sequence[Sequence[int]], padding: int = 0) -> Padded:
        """Pad lists of token ids on the left, so that all end at the same column.

        At least one row, each of at least one id.
        """
        width = max(map(len, rows))
        values = torch.tensor([[padding] * (width - len(row)) + list(row) for row in rows])
        lengths = torch.tensor([len(row) for row in rows])
        real = torch.arange(width) >= width - lengths[:, None]
        return Padded(values, real, "none" if bool(real.all()) else "any")


def is_at_hand(x: Tensor) -> bool:
    """True if a look at values does not wait for a GPU."""
    return x.device.type == "cpu"


def moved(x: Tensor, device: torch.device | str) -> Tensor:
    """The same values on another device, without a wait for the work that a GPU still has."""
    if torch.device(device).type == "cuda" and x.device.type == "cpu":
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


def at_places(x: Padded, places: Padded) -> Padded:
    """Vectors (b, t, m) at places (1, n), counted over all rows."""
    vectors = x.values.flatten(0, 1).index_select(0, places.values[0])
    return places.with_values(vectors[None])


def apart(x: Padded) -> Padded:
    """Sequences of rows with borders in a row each, padded to their bound; others unchanged."""
    if x.borders is None:
        return x
    starts, longest = x.borders
    at = starts[:-1, None] + torch.arange(longest, device=starts.device)
    within, at = at < starts[1:, None], at.clamp(max=x.real.numel() - 1)
    real = x.real.flatten()[at] & within
    return Padded(x.values.flatten(0, 1)[at], real, "right")


def real_values(x: Tensor, real: Tensor, count: int) -> Tensor:
    """(b, t, …) -> (count, …), the values at real positions (b, t), in order.

    count: their number.  Known beforehand, it spares the wait for a GPU to count them.
    """
    # Not x[real], which takes more than twice as long on a CPU, backward pass included.
    on_cpu = x.device.type == "cpu"
    places = real.flatten().nonzero()[:, 0] if on_cpu else real_places(real, count)
    return x.flatten(0, 1).index_select(0, places)


def real_places(real: Tensor, count: int) -> Tensor:
    """(count,) indices of the real positions (b, t) in flattened order, found without a wait."""
    return real.flatten().logical_not().to(torch.uint8).argsort(stable=True)[:count]
