"""A small Transformer's settings, batches of ids, and the size of a model."""

from __future__ import annotations

from torch import nn

from transduce.models.config import EncoderDecoderConfig
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded

STACK = TransformerConfig(n_layers=2, n_heads=4, d_ff=32, dropout=0.0)
MODEL = EncoderDecoderConfig(d_model=16, encoder=STACK, decoder=STACK)


def count(model: nn.Module) -> int:
    """Number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())


def ids(*rows: list[int]) -> Padded:
    """Ids (b, t), padded on the right."""
    return Padded.from_rows(rows)
