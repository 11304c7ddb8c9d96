"""Padding moved to the right, for stacks in which neighbours matter, and back again."""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.sequence import Padded


def padded_right(x: Padded) -> tuple[Padded, Tensor | None]:
    """The same rows, their real positions moved to the front in the order that they had.

    Also the column (b, t) that each position came to, for `put_back`; None if all stayed.
    """
    assert x.packed is None, "only attention can tell several sequences in a row apart"
    if x.padding != "any":
        return x, None
    order = x.real.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    moved = Padded(_by_column(x.values, order), x.real.gather(1, order), "right")
    return moved, order.argsort(dim=1)


def put_back(values: Tensor, columns: Tensor | None) -> Tensor:
    """Values (b, t, m) of positions that `padded_right` moved, where they came from."""
    return values if columns is None else _by_column(values, columns)


def _by_column(values: Tensor, columns: Tensor) -> Tensor:
    return values.gather(1, columns[:, :, None].expand(-1, -1, values.shape[2]))
