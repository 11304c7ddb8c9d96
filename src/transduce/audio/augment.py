"""Augmentation of training recordings: noise, and SpecAugment's masks (Park et al. 2019).

Shapes: b rows, t frames, f bins.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from transduce.audio.features import Features
from transduce.errors import SettingError
from transduce.sequence import Padded
from transduce.settings.sections import section

Masks = Annotated[int, Field(ge=0, le=100)]
Share = Annotated[float, Field(ge=0, le=1)]
Level = Annotated[float, Field(ge=-120, le=0)]
NOISE_SECONDS = 4


@section
class SpecAugmentConfig:
    """Random masks over the features of training recordings, and noise added to them."""

    bin_masks: Masks = 2
    """Masks of neighbouring bins; 0 for none."""
    bin_share: Share = 0.2
    """Maximum width of a mask, as a share of the bins."""
    time_masks: Masks = 2
    """Masks of neighbouring frames; 0 for none."""
    time_share: Share = 0.1
    """Maximum width of a mask, as a share of the length of the recording."""
    noise_share: Share = 0.0
    """Share of recordings with added white noise; another random choice in each epoch."""
    noise_levels: tuple[Level, Level] = (-70.0, -30.0)
    """Lowest and highest level of the noise, in decibels below full scale; drawn for each
    recording."""

    def __post_init__(self) -> None:
        low, high = self.noise_levels
        if low > high:
            raise SettingError(
                f"augmentation.noise_levels = [{low:g}, {high:g}]; give the lower level first"
            )


def white_noise(features: Features) -> Tensor:
    """Log energies (t, f) of some seconds of white noise at full scale, always the same."""
    generator = torch.Generator().manual_seed(0)
    return features(torch.randn(NOISE_SECONDS * features.rate, generator=generator))


def add_noise(
    frames: Padded, config: SpecAugmentConfig, noise: Tensor, generator: torch.Generator
) -> Padded:
    """Log energies (b, t, f) of recordings, some with noise added in power.

    noise: (n, f), as from `white_noise`, read cyclically from a random frame.  Random numbers come
    from `generator` alone; none are drawn for a share of 0.
    """
    if not config.noise_share:
        return frames
    values, (low, high) = frames.values, config.noise_levels
    drawn = torch.rand(len(values), 3, generator=generator, device=generator.device)
    drawn = drawn.to(values.device)
    decibels = low + (high - low) * drawn[:, 1]
    gains = (decibels * math.log(10) / 10).masked_fill(drawn[:, 0] >= config.noise_share, -math.inf)
    starts = (drawn[:, 2] * len(noise)).long()
    times = torch.arange(values.shape[1], device=values.device)
    places = (starts[:, None] + times) % len(noise)
    return frames.with_values(values.logaddexp(noise[places] + gains[:, None, None]))


def spec_augment(frames: Padded, config: SpecAugmentConfig, generator: torch.Generator) -> Padded:
    """Frames (b, t, f) with masked bins and times set to 0, the mean of normalised features."""
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
