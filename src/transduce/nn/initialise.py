"""First values of the weights."""

from __future__ import annotations

from torch import nn

from transduce.nn.attention import CrossAttention, SelfAttention
from transduce.nn.feed_forward import GatedFeedForward


def initialise(model: nn.Module, d_model: int) -> None:
    """Xavier (Glorot and Bengio 2010) for matrices, zero for biases, N(0, 1/m) for embeddings.

    Multiplied by √m on the way in, embeddings then have unit variance; as the output matrix
    they give logits of unit variance.  Projections that stand side by side in one matrix are
    initialised one by one, as the separate matrices that they are in the paper.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=d_model**-0.5)
    for module in model.modules():
        if isinstance(module, SelfAttention):
            side_by_side = module.query_key_value.weight.chunk(3)
        elif isinstance(module, CrossAttention):
            side_by_side = module.key_value.weight.chunk(2)
        elif isinstance(module, GatedFeedForward):
            side_by_side = module.gate_inner.weight.chunk(2)
        else:
            continue
        for part in side_by_side:
            nn.init.xavier_uniform_(part)
