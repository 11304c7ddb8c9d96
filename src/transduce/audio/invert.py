"""Samples from log mel magnitudes: pseudo-inverse, and phases by Griffin-Lim with momentum.

Griffin and Lim (1984); Perraudin, Balazs and Søndergaard (2013).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from transduce.audio.features import Mel

ROUNDS = 60
MOMENTUM = 0.99
SMALLEST = 1e-6


def invert(frames: Tensor, features: Mel, rounds: int = ROUNDS, seed: int = 0) -> Tensor:
    """Samples (n,) with these log mel magnitudes (t, f): n = (t - 1) · hop, none for a single
    frame."""
    if len(frames) < 2:
        return torch.zeros(0)
    frames = frames.detach().float().cpu()
    inverse = torch.linalg.pinv(features.filters)  # (bins of the transform, f)
    magnitudes = (inverse @ frames.T.exp()).clamp(min=SMALLEST)  # (bins, t)
    generator = torch.Generator().manual_seed(seed)
    angles = 2 * math.pi * torch.rand(magnitudes.shape, generator=generator)
    phases = torch.polar(torch.ones_like(magnitudes), angles)
    before = torch.zeros_like(phases)
    for _ in range(rounds):
        again = _spectrum(_samples(magnitudes * phases, features), features)
        ahead = again - MOMENTUM / (1 + MOMENTUM) * before
        phases = ahead / (ahead.abs() + 1e-9)
        before = again
    return _samples(magnitudes * phases, features)


def _spectrum(samples: Tensor, features: Mel) -> Tensor:
    return torch.stft(
        samples,
        features.width,
        features.hop,
        window=features.window,
        pad_mode="constant",  # a reflection needs more samples than two frames have
        return_complex=True,
    )


def _samples(spectrum: Tensor, features: Mel) -> Tensor:
    return torch.istft(spectrum, features.width, features.hop, window=features.window)
