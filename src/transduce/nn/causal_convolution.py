"""Causal convolutions, and their past between two steps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from transduce.nn.positions import position_ids, positions_after
from transduce.nn.state import KeyValue, MemoryRows
from transduce.nn.unpadding import padded_right, restore_places
from transduce.sequence import Padded


class ConvolutionState(MemoryRows):
    """The past of a batch of hypotheses under causal convolutions: the last inputs (r, span, c) of
    each layer, zero before the first position; None before the first step."""

    def __init__(
        self, n_layers: int, memory: Padded | None, memory_layers: Sequence[KeyValue] = ()
    ) -> None:
        super().__init__(memory, list(memory_layers))
        self.pasts: list[Tensor | None] = [None] * n_layers
        self._next: Tensor | None = None  # (r,) position to come

    def extend(self, target: Padded) -> Tensor:
        """Record the positions about to be decoded; returns them, (r, t)."""
        real = target.real
        self._rows = real.shape[0]
        self.length += real.shape[1]
        if target.packed is not None:
            assert self._next is None, "packed rows are read from a fresh state"
            return position_ids(real, target.padding, target.packed)
        before = real.new_zeros(self._rows, dtype=torch.long) if self._next is None else self._next
        self._next = before + real.sum(1)
        return positions_after(before, real)

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        if self._next is not None:
            self._next = self._next.index_select(0, rows)
            self.pasts = [
                past if past is None else past.index_select(0, rows) for past in self.pasts
            ]
        super().select(rows)


class CausalConvolution(nn.Module):
    """Convolution over a position and those before it, dilated: never over later ones."""

    def __init__(self, d_input: int, d_output: int, width: int, dilation: int) -> None:
        super().__init__()
        self.span = (width - 1) * dilation
        self.convolution = nn.Conv1d(d_input, d_output, width, dilation=dilation)

    def forward(self, x: Padded, past: Tensor | None) -> tuple[Tensor, Tensor]:
        """Vectors (r, t, input), and the last real inputs (r, span, input) before them, None at the
        beginning, -> (r, t, output), and the past of the next call."""
        rows, places = padded_right(x)
        whole, after = behind_past(rows, past, self.span)
        outputs = self.convolution(whole.transpose(1, 2)).transpose(1, 2)
        return restore_places(outputs, places), after


def behind_past(rows: Padded, past: Tensor | None, span: int) -> tuple[Tensor, Tensor]:
    """Vectors (r, t, m), padded on the right at most, behind the last `span` before them, zero
    before the first: (r, span + t, m); and the past (r, span, m) of the next call."""
    if past is None:
        past = rows.values.new_zeros(len(rows.values), span, rows.values.shape[2])
    whole = torch.cat([past.to(rows.values.dtype), rows.values], 1)
    if rows.padding == "none":
        return whole, whole[:, whole.shape[1] - span :]
    last = torch.arange(span, device=whole.device) + rows.lengths[:, None]  # (r, span)
    return whole, whole.gather(1, last[:, :, None].expand(-1, -1, whole.shape[2]))
