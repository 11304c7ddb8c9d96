"""Head of a decoder of speech: k frames for each step, and the logit of the end."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn


class FrameGroups(NamedTuple):
    """Frames (r, t·k, bins) of steps that give k each, and logits (r, t) of the end."""

    frames: Tensor
    stop: Tensor


class FramesHead(nn.Module):
    """Two linear layers side by side: the frames of a step, and the logit of the end."""

    def __init__(self, d_model: int, bins: int, frames_per_step: int) -> None:
        super().__init__()
        self.bins = bins
        self.frames = nn.Linear(d_model, frames_per_step * bins)
        self.stop = nn.Linear(d_model, 1)

    def forward(self, x: Tensor) -> FrameGroups:
        """(r, t, m) -> frames (r, t·k, bins) and stop (r, t)."""
        frames = self.frames(x).view(x.shape[0], -1, self.bins)
        return FrameGroups(frames, self.stop(x)[..., 0])
