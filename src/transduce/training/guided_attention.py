"""Guided attention: a loss that keeps cross-attention near the diagonal (Tachibana et al. 2018).

At step t of T, weight on letter n of N costs 1 - exp(-(t / T - n / N)² / 2g²): a voice goes through
its text from the beginning to the end, at about the same pace.
"""

from __future__ import annotations

import torch
from torch import Tensor

WIDTH = 0.2
"""g: distance from the diagonal, as a share of the text, at which weights cost 0.4."""


def guided_attention_loss(weights: Tensor, steps: Tensor, letters: Tensor) -> Tensor:
    """Cost of attention weights (b, h, t, s), the mean of the heads, as a sum over real steps.
    steps: (b, t) and letters: (b, s) bool, True at real positions, padded on the right."""
    costs = 1 - torch.exp(
        -(_shares(steps)[:, :, None] - _shares(letters)[:, None]).square() / 2 / WIDTH**2
    )
    costs = costs * (steps[:, :, None] & letters[:, None])
    return (weights.float().mean(1) * costs).sum()


def _shares(real: Tensor) -> Tensor:
    """(b, t) place of each position as a share of its row's length."""
    places = torch.arange(real.shape[1], device=real.device)
    return places / real.sum(1, keepdim=True)
