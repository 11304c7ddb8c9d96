"""Gradient checkpointing (Chen et al. 2016): trade time for memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transduce.nn.state import KeyValueCache
from transduce.nn.transformer import DecoderLayer, EncoderLayer


def recompute_layers(model: nn.Module) -> None:
    """Keep only the inputs of Transformer layers; the backward pass recomputes the rest."""
    layers = [m for m in model.modules() if isinstance(m, EncoderLayer | DecoderLayer)]
    assert layers, "recipes without Transformer layers are refused when parsed"
    for layer in layers:
        layer.forward = partial(_recomputed, layer.forward)  # type: ignore[method-assign]


def _recomputed(forward: Callable[..., Tensor], x: Tensor, *rest: Any) -> Tensor:
    """A layer's output, (r, t, m) or (n, m) -> the same shape."""
    if not torch.is_grad_enabled():
        return forward(x, *rest)

    def inside(x: Tensor) -> Tensor:
        # A cache must not append twice in two passes; in training it has no later use.
        reinit = (KeyValueCache() if isinstance(part, KeyValueCache) else part for part in rest)
        return forward(x, *reinit)

    output: Tensor = checkpoint(inside, x, use_reentrant=False)
    return output
