"""Cross-attention of a given source and target, for alignments."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from transduce.errors import RunError, SettingError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.attention import record_attention
from transduce.sequence import Padded


def cross_attentions(model: nn.Module) -> list[nn.Module]:
    """Cross-attention of each layer.  Raises RunError for a model without any."""
    named = model.named_modules()
    layers = [module for name, module in named if name.endswith("cross_attention")]
    if not layers:
        raise RunError(
            "alignment needs cross-attention, but this model's decoder has none; train one with "
            "another model.decoder.kind or, if recurrent, context.kind, such as 'general'"
        )
    return layers


def layer_of(layers: list[nn.Module], layer: int) -> nn.Module:
    """A layer by number, from 0 or from the last on -1.  Raises SettingError for no such layer."""
    if not -len(layers) <= layer < len(layers):
        raise SettingError(
            f"alignment layer {layer} is out of range: this model has layers 0 to "
            f"{len(layers) - 1}, or -1 to {-len(layers)} counted from the last"
        )
    return layers[layer]


@torch.inference_mode()
def attended(model: EncoderDecoder, attention: nn.Module, source: Padded, target: Padded) -> Tensor:
    """Weights (b, h, t, s) of a cross-attention, when the model reads source and target."""
    with record_attention(attention) as maps:
        model.advance(target, model.start(source))
    (weights,) = next(iter(maps.values()))
    return weights
