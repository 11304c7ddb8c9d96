"""Settings of an encoder-decoder with a Transformer on each side, readable without PyTorch."""

from __future__ import annotations

from typing import Literal

from transduce.config import section
from transduce.nn.transformer_config import Count, InitMethod, TransformerConfig, check_heads


@section
class EncoderDecoderSettings:
    """Settings of an encoder-decoder beside its stacks."""

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


@section
class TransformerPairConfig(EncoderDecoderSettings):
    """The settings of `EncoderDecoderConfig` where both stacks are Transformers."""

    encoder: TransformerConfig = TransformerConfig()
    decoder: TransformerConfig = TransformerConfig()

    def __post_init__(self) -> None:
        for stack in (self.encoder, self.decoder):
            check_heads(stack, self.d_model)
