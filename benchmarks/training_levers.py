"""Effect of each optimisation of training: the same step with one of them removed.

    python benchmarks/training.py --levers --size tiny,base

Each variant trains the same model on the same batches as `transduce` does, turn by turn, with one
part replaced by the plain implementation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
import training_peers
from torch import Tensor
from training_peers import Peer
from training_peers import transduce as ours
from workload import Size

from transduce.nn import attention, masks, transformer
from transduce.nn.masks import Mask
from transduce.nn.positions import NO_PADDING, Unpadding
from transduce.nn.residual import Dropout
from transduce.nn.state import KeyValue, KeyValueCache
from transduce.sequence import Padded
from transduce.training import loss
from transduce.training.loss import LossSums

Patch = Callable[[], AbstractContextManager[Any]]


def native_dropout(module: Dropout, x: Tensor) -> Tensor:
    """PyTorch's own, which draws one number for each element."""
    return F.dropout(x, module.p, module.training)


def whole_logits(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    smoothing: float,
    bias: Tensor | None,
    count: int | None = None,
) -> LossSums:
    """All logits at once, and the loss as PyTorch has it."""
    logits = F.linear(hidden, weight, bias)
    total = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    return LossSums(total, total.detach(), targets.shape[0] if count is None else count)


def written_out(query: Tensor, key: Tensor, value: Tensor, mask: Any, dropout: float) -> Tensor:
    """Attention with its matrix of weights."""
    return attention.attention_with_weights(query, key, value, mask, dropout)[0]


def three_products(
    self: attention.SelfAttention,
    x: Tensor,
    context: attention.StepContext,
    cache: KeyValueCache | None = None,
) -> Tensor:
    """Self-attention with a projection each for queries, keys and values."""
    projection = self.query_key_value
    query, key, value = (
        self.heads(context.unpadding.pad(F.linear(x, weight, bias)), 1)[0]
        for weight, bias in zip(projection.weight.chunk(3), projection.bias.chunk(3), strict=True)
    )
    if context.angles is not None:
        query, key = (attention.rotate(part, context.angles) for part in (query, key))
    present = KeyValue(key, value)
    mixed = self.attend(query, present if cache is None else cache.append(present), context.mask)
    return self.output(context.unpadding.unpad(mixed.flatten(2)))  # type: ignore[no-any-return]


def told_for_each_pair(of: Callable[..., Mask]) -> Callable[..., Mask]:
    """A mask of self-attention as made by `of`, but with a value for each query and key, even if
    none is hidden; the mask of cross-attention, made once for all layers, is unchanged."""

    def made(keys: Any, *rest: Any) -> Mask:
        real = keys.real if isinstance(keys, Padded) else keys
        b, n = real.shape
        allowed = of(keys, *rest).explicit(n, n, real.device)
        allowed = real.new_ones(()) if allowed is None else allowed
        return Mask(allowed=allowed.expand(b, 1, n, n).contiguous())

    return made


def no_unpadding(batch: Any = None) -> Unpadding:
    """Padding is computed with."""
    return NO_PADDING


def never(*_: Tensor) -> bool:
    """A kernel of PyTorch's takes it, in float32."""
    return False


LEVERS: dict[str, Patch] = {
    "nothing": nullcontext,
    "dropout from 16 bits an element": lambda: patch.object(Dropout, "forward", native_dropout),
    "padding left out": lambda: patch.object(transformer, "Unpadding", no_unpadding),
    "loss in chunks, gradient with it": lambda: patch.object(loss, "cross_entropy", whole_logits),
    "one product for queries, keys, values": lambda: patch.object(
        attention.SelfAttention, "forward", three_products
    ),
    "no mask where none is needed": lambda: patch.multiple(
        transformer,
        key_mask=told_for_each_pair(masks.key_mask),
        whole_mask=told_for_each_pair(masks.whole_mask),
    ),
    "fused attention": lambda: patch.object(attention, "attention", written_out),
    "attention in bfloat16": lambda: patch.object(attention, "is_supported", never),
}
"""A removed optimisation, and its replacement."""


def without(lever: str, size: Size) -> Peer:
    """Our training with one optimisation removed."""
    peer = ours(size)

    def step(batch: Any) -> Tensor:
        with LEVERS[lever]():
            return peer.step(batch)

    return peer._replace(step=step)


def plain_optimizer(size: Size) -> Peer:
    """Our training with Adam as PyTorch runs it by default, one operation after the other."""
    build = torch.optim.AdamW

    def unfused(*arguments: Any, fused: bool, **settings: Any) -> torch.optim.AdamW:
        return build(*arguments, **settings)

    with patch.object(torch.optim, "AdamW", unfused):
        return ours(size)


def memory_given_back(size: Size) -> Peer:
    """Our training with freed memory treated as the C library does by default."""
    with patch.object(training_peers, "keep_freed_memory"):
        return ours(size)


VARIANTS: dict[str, Callable[[Size], Peer]] = {
    **{name: functools.partial(without, name) for name in LEVERS},
    "fused Adam": plain_optimizer,
    "freed memory kept": memory_given_back,
}


def table(size: str, ratios: dict[str, float]) -> str:
    """Markdown."""
    lines = [f"| what is taken away, {size} | a step takes |", "|-|-:|"]
    return "\n".join(
        lines + [f"| {name} | {ratio:.2f} times as long |" for name, ratio in ratios.items()]
    )
