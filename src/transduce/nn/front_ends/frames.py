"""Frames that a decoder has given to vectors, through a bottleneck of dropout."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from transduce.nn.transformer_config import Count
from transduce.sequence import Padded
from transduce.settings.sections import section


@section
class FramesFrontEndConfig:
    """Two layers over the last frame of each step (the pre-net of Shen et al. 2018)."""

    width: Count = 256
    """Width of the first layer; the second has the model's width."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Dropout after each layer, in training and in synthesis: without it a decoder copies the
    previous frame and ignores the text."""


class FramesFrontEnd(nn.Module):
    """Two linear layers, each followed by ReLU and dropout: drawn in training, and in use off
    unless masks are given, since synthesis needs it and must be repeatable."""

    def __init__(self, config: FramesFrontEndConfig, bins: int, d_model: int) -> None:
        """bins: features of a frame."""
        super().__init__()
        self.share = config.dropout
        self.widths = [config.width, d_model]
        """Units of each layer, which a mask keeps or drops."""
        self.first = nn.Linear(bins, config.width)
        self.second = nn.Linear(config.width, d_model)

    def forward(self, frames: Padded, mask: Tensor | None = None) -> Padded:
        """Frames (r, t, bins) -> vectors (r, t, m).  mask: (r, t, u) of both layers, True if
        kept."""
        first, second = (None, None) if mask is None else mask.split_with_sizes(self.widths, -1)
        hidden = self._dropped(F.relu(self.first(frames.values)), first)
        vectors = self._dropped(F.relu(self.second(hidden)), second)
        return frames.with_values(vectors)

    def _dropped(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return F.dropout(x, self.share, self.training)
        return torch.where(mask, x / (1 - self.share), 0.0)
