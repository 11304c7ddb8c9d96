"""Presets of models with a single stack: BERT, GPT-2, ViT."""

from __future__ import annotations

from functools import partial

from transduce.models.decoder_only import DecoderOnlyConfig
from transduce.models.vision import VisionConfig
from transduce.nn.transformer_config import TransformerConfig

_stack = partial(
    TransformerConfig, n_layers=12, n_heads=12, d_ff=3072, positions="learned", dropout=0.1
)


# Radford et al. 2019, the smallest GPT-2: 124.44 million parameters with 50,257 tokens.
GPT2 = DecoderOnlyConfig(
    d_model=768,
    decoder=_stack(
        activation="gelu-tanh", norm_order="pre", max_positions=1024, attention_dropout=0.1
    ),
    scale_embeddings=False,
)

# Dosovitskiy et al. 2021, ViT-B/16: 86.57 million parameters with 1,000 labels, 224 x 224 pixels.
VIT_B16 = VisionConfig(
    d_model=768,
    patch_size=16,
    class_token=True,
    encoder=_stack(activation="gelu", norm_order="pre", norm_epsilon=1e-6),
)


DECODER_PRESETS = {"gpt2": GPT2}
"""Language models."""

VISION_PRESETS = {"vit-b16": VIT_B16}
"""Encoders of images."""
