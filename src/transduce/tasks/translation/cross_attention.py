"""Cross-attention of a given source and target, for alignments."""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.errors import RunError, SettingError
from transduce.explain.attention import record_attention
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.sequence import Padded


def check_layer(layer: int, n_layers: int) -> None:
    """Raises RunError for a model without cross-attention, SettingError for a missing layer."""
    if not n_layers:
        raise RunError(
            "alignment needs cross-attention, but this model's decoder has none; train one with "
            "another model.decoder.kind or, if recurrent, context.kind, such as 'general'"
        )
    if not -n_layers <= layer < n_layers:
        raise SettingError(
            f"alignment layer {layer} is out of range: this model has layers 0 to "
            f"{n_layers - 1}, or -1 to {-n_layers} counted from the last"
        )


@torch.inference_mode()
def attended(model: EncoderDecoder, source: Padded, target: Padded, layer: int) -> Tensor:
    """Weights (b, t, s) of the cross-attention of a layer, the mean of its heads.

    Raises as `check_layer` does.
    """
    with record_attention(model) as maps:
        layers = [weights for name, weights in maps.items() if name.endswith("cross_attention")]
        check_layer(layer, len(layers))
        model(source, target)
    return layers[layer][0].mean(1)  # (b, h, t, s) -> (b, t, s)
