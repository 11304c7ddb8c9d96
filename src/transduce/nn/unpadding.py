"""Padding removed, or moved to the right for stacks in which neighbours matter, and put back."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.nn.positions import position_ids, sequence_begins
from transduce.sequence import Padded


class Unpadding:
    """Removes padding for position-wise layers, and restores it for attention.

    Batches without padding are unchanged, unless autocast needs another number of rows, and so are
    packed rows with borders, and all on devices where finding the padding would make the CPU wait.
    """

    def __init__(self, batch: Padded | None = None) -> None:
        """The identity, without a batch."""
        self._places: _Places | None = None
        if (
            batch is not None
            and not torch.compiler.is_compiling()  # first: the compiler cannot trace the others
            and batch.real.device.type == "cpu"
            and batch.borders is None
            and (batch.padding != "none" or torch.is_autocast_enabled("cpu"))
        ):
            places = _Places(batch.real)
            if len(places.of_rows) != batch.real.numel():
                self._places = places

    def unpad(self, x: Tensor) -> Tensor:
        """(b, t, …) -> (n, …), n real positions; or x unchanged."""
        if self._places is None:
            return x
        at = self._places
        return _Gather.apply(x.flatten(0, 1), at.of_rows, at.rows, at.padding)  # type: ignore[no-any-return, no-untyped-call]

    def pad(self, x: Tensor) -> Tensor:
        """(n, …) -> (b, t, …), with any finite values at padding; or x unchanged."""
        if self._places is None:
            return x
        at = self._places
        # What stands at padding is not looked at, so no gradient comes from there.
        spread = _Gather.apply(x, at.rows, at.of_rows, at.repeated)  # type: ignore[no-untyped-call]
        return spread.view(*at.shape, *x.shape[1:])  # type: ignore[no-any-return]


NO_PADDING = Unpadding()


class _Places:
    """Index of rows and of places: gathering is fast both ways, unlike scattering."""

    def __init__(self, real: Tensor) -> None:
        self.shape = real.shape
        flat = real.flatten()
        self.of_rows = flat.nonzero()[:, 0]  # (n,) places, perhaps with more behind them
        self.repeated = flat.new_empty(0, dtype=torch.long)
        self.padding = flat.logical_not().nonzero()[:, 0]
        self.rows = (flat.cumsum(0) - 1).clamp_(min=0)  # (b·t,) the row of each place
        if torch.is_autocast_enabled("cpu"):
            # Narrow products are compiled, and kept, for each number of rows that is new, which
            # takes longer than they do: so that few are, a row is repeated that nobody looks at.
            n = len(self.of_rows)
            self.of_rows = F.pad(self.of_rows, (0, -n % row_step(n)))
            self.repeated = torch.arange(n, len(self.of_rows))


def row_step(n: int) -> int:
    """Multiple to which n rows are rounded up: sixteen sizes between n and 2n."""
    return 1 << max(5, n.bit_length() - 5)


class _Gather(torch.autograd.Function):
    """Rows `index` of x, with their gradient gathered by `back`, zero at `zeros`."""

    @staticmethod
    def forward(context: Any, x: Tensor, index: Tensor, back: Tensor, zeros: Tensor) -> Tensor:
        context.back, context.zeros = back, zeros
        return x.index_select(0, index)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        gathered = gradients[0].index_select(0, context.back)
        return gathered.index_fill_(0, context.zeros, 0.0), None, None, None


def padded_right(x: Padded) -> tuple[Padded, Tensor | None]:
    """Move real positions of rows to the front, in order, and packed sequences to their own rows.
    Also returns the place (b, t) of each position among all places of the new rows, for
    `restore_places`; None if none moved."""
    if x.packed is not None:
        return _own_rows(x, x.packed)
    if x.padding != "any":
        return x, None
    b, t, m = x.values.shape
    order = x.real.logical_not().to(torch.uint8).argsort(dim=1, stable=True)
    values = x.values.gather(1, order[:, :, None].expand(-1, -1, m))
    moved = Padded(values, x.real.gather(1, order), "right")
    return moved, order.argsort(dim=1) + t * torch.arange(b, device=order.device)[:, None]


def restore_places(values: Tensor, places: Tensor | None) -> Tensor:
    """Move vectors (b', t', m) of positions moved by `padded_right` back to (b, t, m)."""
    if places is None:
        return values
    return values.flatten(0, 1).index_select(0, places.flatten()).view(*places.shape, -1)


def _own_rows(x: Padded, packed: Tensor) -> tuple[Padded, Tensor]:
    real = x.real.flatten()
    row = (sequence_begins(packed) & x.real).flatten().cumsum(0) - 1
    column = position_ids(x.real, x.padding, packed).flatten()
    lengths = row[real].bincount()
    width = int(lengths.max())
    places = torch.where(real, row * width + column, 0)
    values = x.values.new_zeros(len(lengths) * width, x.values.shape[2])
    values = values.index_copy(0, places[real], x.values.flatten(0, 1)[real])
    apart = torch.arange(width, device=real.device) < lengths[:, None]
    rows = Padded(values.view(len(lengths), width, -1), apart, "right")
    return rows, places.view(x.real.shape)
