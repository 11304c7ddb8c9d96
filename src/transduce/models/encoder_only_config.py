"""Settings of an encoder alone, readable without PyTorch."""

from __future__ import annotations

from transduce.nn.stack_configs import EncoderConfig, check_stack
from transduce.nn.transformer_config import Count, PoolerActivation, Pooling, TransformerConfig
from transduce.settings.sections import section


@section
class EncoderOnlyConfig:
    """An encoder over text; the defaults are BERT's shape at a size for one machine."""

    d_model: Count = 128
    """Width of the model, everywhere."""
    encoder: EncoderConfig = TransformerConfig(
        n_layers=4,
        n_heads=4,
        d_ff=512,
        activation="gelu",
        norm_order="pre",
        positions="learned",
        max_positions=512,
    )
    scale_embeddings: bool = True
    """Multiply embeddings by √d_model, as in the paper; BERT does not."""
    segments: bool = False
    """Add segment embeddings to distinguish the two texts of a pair, as in BERT."""
    pooling: Pooling = "mean"
    """Pooling over positions: the first vector, or the mean or maximum of all."""
    pooler: bool = False
    """A dense layer and an activation over the pooled vector before the labels, as in BERT."""
    pooler_activation: PoolerActivation = "tanh"
    """Activation after the dense layer of the pooler; "relu" for DistilBERT."""

    def __post_init__(self) -> None:
        check_stack(self.encoder, self.d_model)


# Devlin et al. 2019, BERT-base: 109.48 million parameters with 30,522 word pieces and the pooler.
BERT_BASE = EncoderOnlyConfig(
    d_model=768,
    encoder=TransformerConfig(
        n_layers=12,
        n_heads=12,
        d_ff=3072,
        positions="learned",
        activation="gelu",
        norm_order="post",
        max_positions=512,
        attention_dropout=0.1,
        embedding_norm=True,
        norm_epsilon=1e-12,
    ),
    scale_embeddings=False,
    segments=True,
    pooling="first",
    pooler=True,
)

ENCODER_PRESETS = {"bert-base": BERT_BASE}
"""Encoders of text."""
