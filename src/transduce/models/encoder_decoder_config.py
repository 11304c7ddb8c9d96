"""Settings of an encoder-decoder, readable without PyTorch."""

from __future__ import annotations

from typing import Literal

from transduce.errors import SettingError
from transduce.nn.stack_configs import DecoderConfig, EncoderConfig, check_stack
from transduce.nn.transformer_config import Count, InitMethod, TransformerConfig
from transduce.settings.sections import section


@section
class EncoderDecoderConfig:
    """An encoder-decoder; the defaults are the paper's base model."""

    d_model: Count = 512
    """Width of the model, everywhere."""
    tie: Literal["none", "two-way", "three-way"] = "three-way"
    """Weight tying: two-way shares target embedding and output matrix, three-way also the source
    embedding (the paper; needs a joint vocabulary)."""
    init: InitMethod = "xavier"
    """Initialisation: Xavier for matrices and unit variance for scaled embeddings (xavier), or N(0,
    0.02²) for all (normal); the better choice depends on the data."""
    scale_embeddings: bool = True
    """Multiply embeddings by √d_model, as in the paper."""
    output_bias: bool = False
    """Bias on the logits; imported models ban tokens with it."""
    encoder: EncoderConfig = TransformerConfig()
    decoder: DecoderConfig = TransformerConfig()

    def __post_init__(self) -> None:
        for stack in (self.encoder, self.decoder):
            check_stack(stack, self.d_model)


def check_tie(config: EncoderDecoderConfig, joint: bool) -> None:
    """Raises SettingError if matrices of different vocabularies are to be tied."""
    if config.tie == "three-way" and not joint:
        raise SettingError(
            "model.tie = 'three-way' needs one joint vocabulary; remove text.target, or "
            "set model.tie = 'two-way'"
        )
