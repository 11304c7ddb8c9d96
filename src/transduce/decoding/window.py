"""Sliding window of a decoder-only model, which is trained on a limited number of positions: a
longer row is cut to its last three quarters and read again, so that cuts are rare and cheap."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.decoding.step_model import NextTokenModel
from transduce.nn.state import DecoderState
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
        self._last: Tensor | None = None  # (1,) column of the newest ids, in a block

    def reserve(self, steps: int, sentences: int) -> bool:
        """Begin a block, as of `DecoderState`, that does not reach the end of the window."""
        assert self.held is not None
        self._past = past = self.held.real.shape[1]
        fits = past + steps <= self.window and isinstance(self.state, DecoderState)
        if not fits or not self.state.reserve(steps, sentences):
            return False
        values, real = (F.pad(part, (0, steps)) for part in self.held[:2])
        self.held, self._last = Padded(values, real), values.new_full((1,), past - 1)
        return True

    def reorder(self, rows: Tensor) -> None:
        """Reorder the hypotheses of each sentence among themselves, in a block."""
        assert self.held is not None
        self.held.values.copy_(self.held.values.index_select(0, rows))
        self.state.reorder(rows)

    def release(self, steps: int) -> None:
        """End the block after so many steps."""
        assert self.held is not None
        values, real = (part[:, : self._past + steps] for part in self.held[:2])
        self.held, self._last = Padded(values, real), None
        self.state.release(steps)

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""
        self.state.select(rows)
        if self.held is not None:
            self.held = self.held.select(rows)

    def step(self, target: Padded) -> Tensor:
        """Logits (r, 1, v) of the next token after `target` (r, t)."""
        if self._last is not None and self.held is not None:
            self._last += 1
            self.held.values.index_copy_(1, self._last, target.values)
            self.held.real.index_fill_(1, self._last, True)
            return self.model.last_logits(target, self.state)
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
