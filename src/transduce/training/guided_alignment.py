"""Guided alignment: a loss that trains a head of cross-attention on given links.

With head weights A and alignment links α, normalised for each target token, - Σ_t Σ_s α_ts log A_ts
is weighted and added to the translation loss (Chen et al. 2016; Garg et al. 2019).  Tokens without
links do not contribute.  The head still takes part in translation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transduce.data.links import BatchLinks
from transduce.nn.attention import RecordedAttention
from transduce.training.config import GuidedAlignmentConfig

SMALLEST = 1e-9
"""Floor of the attention weights; softmax values rounded to zero have no gradient."""


def guided_attention(model: nn.Module, config: GuidedAlignmentConfig) -> RecordedAttention:
    """Cross-attention with the supervised head."""
    named = model.named_modules()
    layers = [module for name, module in named if name.endswith("cross_attention")]
    attention = layers[config.layer]
    assert isinstance(attention, RecordedAttention)
    return attention


def alignment_loss(weights: Tensor, links: BatchLinks) -> Tensor:
    """Alignment loss summed over the batch, from the weights (b, t, s) of the head."""
    indices = [torch.from_numpy(part).to(weights.device) for part in links[:3]]
    shares = torch.from_numpy(links.shares).to(weights.device)
    linked = weights[indices[0], indices[1], indices[2]].float()
    return -(shares * linked.clamp_min(SMALLEST).log()).sum()
