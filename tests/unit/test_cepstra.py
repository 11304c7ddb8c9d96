"""Mel-cepstral distortion and guided attention, against their definitions."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest
import torch

from transduce.speech.features import mel_cepstral_distortion
from transduce.speech.synthesis import guided_attention_loss


def test_pace_and_loudness_do_not_count() -> None:
    frames = np.random.default_rng(1).normal(size=(7, 20))
    slow = frames.repeat([1, 3, 1, 2, 1, 1, 4], axis=0)
    assert mel_cepstral_distortion(slow, frames) == pytest.approx(0, abs=1e-9)
    assert mel_cepstral_distortion(frames + 2.5, frames) == pytest.approx(0, abs=1e-9)


def test_it_is_the_distance_of_spectra_in_decibels() -> None:
    """A ripple of amplitude a, in nepers, has the root mean square 20 / ln 10 · a / √2 dB."""
    bins = 40
    ripple = np.cos(np.pi * 3 * (np.arange(bins) + 0.5) / bins)
    flat = np.zeros((4, bins))
    expected = 20 / math.log(10) * 0.3 / math.sqrt(2)
    assert mel_cepstral_distortion(flat + 0.3 * ripple, flat) == pytest.approx(expected)


def test_the_path_is_the_cheapest_of_all() -> None:
    random = np.random.default_rng(2)
    a, b = random.normal(size=(5, 14)), random.normal(size=(4, 14))
    pairs = [[mel_cepstral_distortion(x[None], y[None]) for y in b] for x in a]

    @functools.cache
    def best(i: int, j: int) -> tuple[float, int]:
        """Sum and length of the cheapest path to (i, j)."""
        before = [(i - 1, j - 1), (i - 1, j), (i, j - 1)]
        ways = [best(x, y) for x, y in before if x >= 0 and y >= 0]
        cost, length = min(ways, default=(0.0, 0))
        return cost + pairs[i][j], length + 1

    cost, length = best(4, 3)
    assert mel_cepstral_distortion(a, b) == pytest.approx(cost / length)


def test_guided_attention_costs_what_is_off_the_diagonal() -> None:
    """Against the formula, position by position; padding and the diagonal cost nothing."""
    torch.manual_seed(1)
    weights = torch.rand(2, 3, 6, 5)
    steps = torch.arange(6) < torch.tensor([[6], [4]])
    letters = torch.arange(5) < torch.tensor([[5], [2]])
    expected = 0.0
    for b, (n_steps, n_letters) in enumerate(((6, 5), (4, 2))):
        for t in range(n_steps):
            for n in range(n_letters):
                cost = 1 - math.exp(-((t / n_steps - n / n_letters) ** 2) / (2 * 0.2**2))
                expected += cost * float(weights[b, :, t, n].mean())
    result = guided_attention_loss(weights, steps, letters)
    assert float(result) == pytest.approx(expected, rel=1e-5)
    square = torch.ones(1, 4, dtype=torch.bool)
    assert float(guided_attention_loss(torch.eye(4)[None, None], square, square)) == 0
