"""Samples from log mel magnitudes: pseudo-inverse, and phases by Griffin-Lim with momentum.

Griffin and Lim (1984); Perraudin, Balazs and Søndergaard (2013).
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from transduce.audio.features import Mel

ROUNDS = 60
MOMENTUM = 0.99
SMALLEST = 1e-6
MOST_FRAMES = 4000
"""Frames inverted together, so that memory does not grow with the length."""


def invert(frames: Tensor, features: Mel, rounds: int = ROUNDS, seed: int = 0) -> Tensor:
    """Samples (n,) with these log mel magnitudes (t, f): n = (t - 1) · hop, none for a single
    frame.  Long speech is cut at its quietest frames."""
    if len(frames) < 2:
        return torch.zeros(0)
    frames = frames.detach().float().cpu()
    cuts = [0]
    while len(frames) - cuts[-1] > MOST_FRAMES:
        later = cuts[-1] + MOST_FRAMES // 2
        quietest = frames[later : later + MOST_FRAMES // 2 - 1].exp().sum(1).argmin()
        cuts.append(later + int(quietest))
    cuts.append(len(frames) - 1)
    inverse = torch.linalg.pinv(torch.from_numpy(features.filters))  # (bins of the transform, f)
    parts = [frames[start : end + 1] for start, end in itertools.pairwise(cuts)]
    return torch.cat([_inverted(part, inverse, features, rounds, seed) for part in parts])


def _inverted(frames: Tensor, inverse: Tensor, features: Mel, rounds: int, seed: int) -> Tensor:
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
        window=torch.from_numpy(features.window),
        pad_mode="constant",  # a reflection needs more samples than two frames have
        return_complex=True,
    )


def _samples(spectrum: Tensor, features: Mel) -> Tensor:
    window = torch.from_numpy(features.window)
    return torch.istft(spectrum, features.width, features.hop, window=window)
