"""SpecAugment: masks over bins and over time (Park et al. 2019).

Shapes: b rows, t frames, f bins.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from transduce.config import section
from transduce.sequence import Padded

Masks = Annotated[int, Field(ge=0, le=100)]
Share = Annotated[float, Field(ge=0, le=1)]


@section
class SpecAugmentConfig:
    """Random masks over the features of training recordings."""

    bin_masks: Masks = 2
    """Masks of neighbouring bins; 0 for none."""
    bin_share: Share = 0.2
    """Largest width of each, as a share of the bins."""
    time_masks: Masks = 2
    """Masks of neighbouring frames; 0 for none."""
    time_share: Share = 0.1
    """Largest width of each, as a share of the recording's own length."""


def spec_augment(frames: Padded, config: SpecAugmentConfig, generator: torch.Generator) -> Padded:
    """Frames (b, t, f) with masked bins and times set to 0, the mean of normalised features.

    Random numbers come from `generator` alone, on its own device; the input stays unchanged.
    """
    values = frames.values
    b, t, f = values.shape
    lengths = frames.lengths
    bins = torch.full((b,), f, device=values.device)
    masked = _masks(bins, f, config.bin_masks, config.bin_share, generator)[:, None, :]
    masked = (
        masked | _masks(lengths, t, config.time_masks, config.time_share, generator)[:, :, None]
    )
    return frames.with_values(values.masked_fill(masked, 0.0))


def _masks(
    lengths: Tensor, size: int, count: int, share: float, generator: torch.Generator
) -> Tensor:
    """(b, size) True in `count` spans of each row, within its length (b,)."""
    drawn = torch.rand(len(lengths), count, 2, generator=generator, device=generator.device)
    drawn = drawn.to(lengths.device)
    widths = (drawn[:, :, 0] * ((lengths * share).floor() + 1)[:, None]).long()  # (b, count)
    starts = (drawn[:, :, 1] * (lengths[:, None] - widths + 1)).long()
    places = torch.arange(size, device=lengths.device)
    inside = (starts[:, :, None] <= places) & (places < (starts + widths)[:, :, None])
    return inside.any(1)
