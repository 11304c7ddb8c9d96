"""Guided alignment: a loss that trains one head of cross-attention on given links.

With head weights A and alignment links α, normalised for each target token, the loss

    - Σ_t Σ_s α_ts log A_ts

is weighted and added to the translation loss (Chen et al. 2016; Garg et al. 2019). Tokens without
links do not contribute. The head still takes part in translation.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from transduce.config import section
from transduce.data.links import BatchLinks
from transduce.data.pairs import FilePath
from transduce.errors import SettingError
from transduce.nn.attention import RecordedAttention
from transduce.text.units import WordUnit
from transduce.training.config import RDropTrainingConfig

SMALLEST = 1e-9
"""Floor of the attention weights; softmax values rounded to zero have no gradient."""


@section
class GuidedAlignmentConfig:
    """Guided alignment: the supervised head, and its links."""

    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    """Weight of the alignment loss, relative to the translation loss."""
    layer: int = -1
    """Decoder layer, from 0, or from -1 for the last."""
    head: Annotated[int, Field(ge=0)] = 0
    """Attention head of that layer."""
    links: FilePath | None = None
    """File with the links of each pair of `data.train`, in Pharaoh's format; by default, links are
    learnt from the training pairs by EM in both directions."""
    unit: WordUnit = "words"
    """Unit of the indices in the file: words between spaces, or also characters of Chinese and
    Japanese."""


@section
class GuidedTrainingConfig(RDropTrainingConfig):
    """Training settings of models with trainable cross-attention."""

    alignment: GuidedAlignmentConfig | None = None
    """Guided alignment of one cross-attention head; by default none."""


def check_head(config: GuidedAlignmentConfig, n_layers: int, n_heads: int) -> None:
    """Raises SettingError if the decoder does not have the head."""
    if not n_layers:
        raise SettingError("training.alignment needs cross-attention, but the decoder has none")
    if not -n_layers <= config.layer < n_layers:
        raise SettingError(
            f"training.alignment.layer = {config.layer} is out of range: the decoder has layers "
            f"0 to {n_layers - 1}, or -1 to {-n_layers} counted from the last"
        )
    if config.head >= n_heads:
        raise SettingError(
            f"training.alignment.head = {config.head} is out of range: the decoder has heads 0 to "
            f"{n_heads - 1}"
        )


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
