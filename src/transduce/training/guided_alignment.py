"""Guided alignment: a loss that trains one head of cross-attention on given links.

With A the head's weights and α the links of each target token, which share 1 equally, the loss

    - Σ_t Σ_s α_ts log A_ts

is added, times a weight, to that of the words (Chen et al. 2016; Garg et al. 2019).  Tokens
without links teach nothing.  The head goes on serving the translation as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
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
"""Weights below it, as a softmax rounds them to zero, have no gradient."""


@section
class GuidedAlignmentConfig:
    """Which head learns to align, and from what."""

    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.05
    """How much the loss of the alignment counts beside that of the words."""
    layer: int = -1
    """Layer of the decoder, from 0, or from the last on -1."""
    head: Annotated[int, Field(ge=0)] = 0
    """The head of that layer."""
    links: FilePath | None = None
    """File with the links of each pair of `data.train`, in Pharaoh's format; without it they are
    learnt from the training pairs, by EM in both directions."""
    unit: WordUnit = "words"
    """What the file counts: words between blanks, or characters of Chinese and Japanese too."""


@section
class GuidedTrainingConfig(RDropTrainingConfig):
    """The same for models whose attention to a source can be taught."""

    alignment: GuidedAlignmentConfig | None = None
    """Teach a head which source token each target token comes from; by default none."""


def check_head(config: GuidedAlignmentConfig, n_layers: int, n_heads: int) -> None:
    """Raises SettingError unless the decoder, of so many layers and heads, has the head."""
    if not n_layers:
        raise SettingError(
            "training.alignment needs a decoder with attention to the source, not the fixed context"
        )
    if not -n_layers <= config.layer < n_layers:
        raise SettingError(
            f"training.alignment.layer is {config.layer}, but the decoder has {n_layers}: 0 to "
            f"{n_layers - 1}, or from the last on -1 to {-n_layers}"
        )
    if config.head >= n_heads:
        raise SettingError(
            f"training.alignment.head is {config.head}, but the decoder has {n_heads}, from 0 to "
            f"{n_heads - 1}"
        )


def guided_attention(model: nn.Module, config: GuidedAlignmentConfig) -> RecordedAttention:
    """The attention to be taught."""
    named = model.named_modules()
    layers = [module for name, module in named if name.endswith("cross_attention")]
    attention = layers[config.layer]
    assert isinstance(attention, RecordedAttention)
    return attention


@contextmanager
def weights_with_gradient(attention: RecordedAttention) -> Iterator[list[Tensor]]:
    """The weights of each call while the context lasts, part of the graph."""
    recorded: list[Tensor] = []
    attention.weights, attention.trained_by_weights = recorded, True
    try:
        yield recorded
    finally:
        attention.weights, attention.trained_by_weights = None, False


def alignment_loss(weights: Tensor, links: BatchLinks) -> Tensor:
    """The loss above, summed over the batch, from the weights (b, t, s) of the head."""
    place = [torch.from_numpy(part).to(weights.device) for part in links[:3]]
    shares = torch.from_numpy(links.shares).to(weights.device)
    linked = weights[place[0], place[1], place[2]].float()
    return -(shares * linked.clamp_min(SMALLEST).log()).sum()
