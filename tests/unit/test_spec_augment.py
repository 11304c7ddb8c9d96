"""SpecAugment: masks within each recording, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.audio import tone
from transduce import SettingError
from transduce.sequence import Padded
from transduce.speech.features import Fbank
from transduce.speech.model_config import SpecAugmentConfig
from transduce.speech.normalisation import add_noise, spec_augment, white_noise
from transduce.speech.recipe import padded_frames


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


def test_noise_is_added_in_power() -> None:
    """Frames with noise are, in the mean, those of a recording with noise of that level."""
    fbank = Fbank(8000, 40)
    level = -40.0
    config = SpecAugmentConfig(noise_share=1.0, noise_levels=(level, level))
    given = tone(2.0, 8000, level=0.1)
    frames = padded_frames([fbank(given)] * 2)
    generator = torch.Generator().manual_seed(1)
    result = add_noise(frames, config, white_noise(fbank), generator).values
    added = torch.randn(len(given), generator=generator).numpy()
    expected = torch.from_numpy(fbank(given + np.float32(10 ** (level / 20)) * added))
    assert (result.mean((0, 1)) - expected.mean(0)).abs().max() < 0.4
    assert (result >= frames.values).all() and not result[0].equal(result[1])


def test_noise_for_some_recordings() -> None:
    fbank = Fbank(8000, 40)
    frames = Padded(torch.full((400, 3, 40), -15.0), torch.ones(400, 3, dtype=torch.bool), "none")
    noise, config = white_noise(fbank), SpecAugmentConfig(noise_share=0.3)
    result = add_noise(frames, config, noise, torch.Generator().manual_seed(1))
    changed = (result.values != frames.values).any(2).any(1)
    assert 90 < int(changed.sum()) < 150
    again = add_noise(frames, config, noise, torch.Generator().manual_seed(1))
    assert result.values.equal(again.values)
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    assert add_noise(frames, SpecAugmentConfig(), noise, generator) is frames
    assert generator.get_state().equal(before)
    with pytest.raises(SettingError, match="give the lower level first"):
        SpecAugmentConfig(noise_levels=(-20.0, -30.0))
