"""Augmentation of training recordings: noise, and SpecAugment's masks (Park et al. 2019).

Shapes: b rows, t frames, f bins.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from transduce.audio.augment_config import SpecAugmentConfig
from transduce.audio.features import Features
from transduce.sequence import Padded

NOISE_SECONDS = 4


def white_noise(features: Features) -> Tensor:
    """Log energies (t, f) of some seconds of white noise at full scale, always the same."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(NOISE_SECONDS * features.rate, generator=generator)
    return torch.from_numpy(features(noise.numpy()))


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
