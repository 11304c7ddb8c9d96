"""Sliding window of a decoder-only model, which is trained on a limited number of positions: a
longer row is cut to its last three quarters and read again, so that cuts are rare and cheap."""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.decoding.step_model import NextTokenModel
from transduce.sequence import Padded

KEPT = 0.75


class WindowedState:
    """A decoder's state, and the ids that it holds."""

    def __init__(self, model: NextTokenModel, window: int) -> None:
        """window: maximum positions of a row, at least 2."""
        assert window >= 2, window
        self.model = model
        self.window = window
        self.state = model.start()
        self.held: Padded | None = None

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        self.state.select(rows)
        if self.held is not None:
            self.held = self.held.select(rows)

    def step(self, target: Padded) -> Tensor:
        """Logits (r, 1, v) of the next token after `target` (r, t)."""
        held = target if self.held is None else _joined(self.held, target)
        if held.real.shape[1] > self.window:
            keep = self._keep(held.real)
            if keep is not None:
                first = int(keep.any(0).int().argmax())
                held = Padded(held.values[:, first:], keep[:, first:], "any")
                self.state, target = self.model.start(), held
        self.held = held
        return self.model.last_logits(target, self.state)

    def _keep(self, real: Tensor) -> Tensor | None:
        """(r, t) `real` after cutting rows that are too long, each by its own length; None if there
        are none."""
        too_long = real.sum(1, keepdim=True) > self.window  # (r, 1)
        if not bool(too_long.any()):
            return None
        from_the_end = real.flip(1).cumsum(1).flip(1)
        return real & ~(too_long & (from_the_end > kept_tokens(self.window)))


def kept_tokens(window: int) -> int:
    """Tokens that are left of a row beyond the window."""
    return max(1, int(KEPT * window))


def _joined(before: Padded, after: Padded) -> Padded:
    values = torch.cat([before.values, after.values], 1)
    real = torch.cat([before.real, after.real], 1)
    return Padded(values, real, "none" if before.padding == after.padding == "none" else "any")
