"""SpecAugment: masks within each recording, and nothing else."""

from __future__ import annotations

import torch

from transduce.audio.augment import SpecAugmentConfig, spec_augment
from transduce.sequence import Padded


def frames(lengths: list[int], bins: int = 40) -> Padded:
    real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Padded(torch.ones(len(lengths), max(lengths), bins) * real[:, :, None], real, "right")


def masked(config: SpecAugmentConfig, given: Padded, seed: int) -> torch.Tensor:
    """(b, t, f) True where a real value was masked."""
    changed = spec_augment(given, config, torch.Generator().manual_seed(seed))
    assert changed.real is given.real
    assert set(changed.values.unique().tolist()) <= {0.0, 1.0}
    return (changed.values == 0) & given.real[:, :, None]


def test_masks_are_as_wide_as_set() -> None:
    config = SpecAugmentConfig(bin_masks=1, bin_share=0.2, time_masks=1, time_share=0.1)
    widths = []
    for seed in range(200):
        for row, length in zip(masked(config, frames([100, 20]), seed), (100, 20), strict=True):
            bins, times = row[:length].all(0), row[:length].all(1)
            assert torch.equal(row[:length], bins[None, :] | times[:, None])
            widths.append((length, int(bins.sum()), int(times.sum())))
    assert max(bins for _, bins, _ in widths) == 8
    assert max(times for length, _, times in widths if length == 100) == 10
    assert max(times for length, _, times in widths if length == 20) == 2
    assert min(bins for _, bins, _ in widths) == 0


def test_it_is_repeatable_and_can_be_off() -> None:
    given = frames([50, 50])
    config = SpecAugmentConfig()
    assert torch.equal(masked(config, given, 1), masked(config, given, 1))
    assert not torch.equal(masked(config, given, 1), masked(config, given, 2))
    off = SpecAugmentConfig(bin_masks=0, time_masks=0)
    assert not masked(off, given, 1).any()
    assert given.values.min() == 1
