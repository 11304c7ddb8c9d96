"""Attention in bfloat16 on a CPU, with a gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

MAX_KEYS = 256
"""Maximum number of keys, since all weights are stored; beyond it, a fused kernel is used."""


def is_supported(key: Tensor) -> bool:
    """True if keys (…, s, d) are few enough, and PyTorch is not compiling."""
    return key.shape[-2] <= MAX_KEYS and not torch.compiler.is_compiling()


def bf16_attention(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None) -> Tensor:
    """Attention (b, h, t, d), its products in bfloat16 and its softmax in float32, as autocast has
    it, where allowed, broadcastable to (b, h, t, s); zeros where no position is allowed."""
    return _Bf16Attention.apply(query, key, value, allowed)  # type: ignore[no-any-return, no-untyped-call]


class _Bf16Attention(torch.autograd.Function):
    """Custom gradient: autograd would keep and read scores and weights in both precisions."""

    @staticmethod
    def forward(
        context: Any, query: Tensor, key: Tensor, value: Tensor, allowed: Tensor | None
    ) -> Tensor:
        b, h, t, d = query.shape
        q, k, v = (part.reshape(b * h, -1, d) for part in (query, key, value))
        scores = torch.bmm(q, k.transpose(1, 2)).float().mul_(d**-0.5)  # (b·h, t, s)
        hidden = None if allowed is None else allowed.logical_not()
        if hidden is not None:
            scores.view(b, h, t, -1).masked_fill_(hidden, float("-inf"))
        weights = scores.softmax(-1).to(q.dtype)
        if hidden is not None:  # softmax over nothing is not a number
            weights.view(b, h, t, -1).masked_fill_(hidden, 0.0)
        context.save_for_backward(q, k, v, weights)
        return torch.bmm(weights, v).view(b, h, t, d)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights = context.saved_tensors
        b, h, t, d = gradients[0].shape
        of_output = gradients[0].reshape(b * h, t, d)
        of_weights = torch.bmm(of_output, v.transpose(1, 2)).float()
        wide = weights.float()
        of_scores = of_weights.sub_((of_weights * wide).sum(-1, keepdim=True)).mul_(wide)
        narrow = of_scores.mul_(d**-0.5).to(q.dtype)
        each = (
            torch.bmm(narrow, k),
            torch.bmm(narrow.transpose(1, 2), q),
            torch.bmm(weights.transpose(1, 2), of_output),
        )
        return (*(part.view(b, h, -1, d) for part in each), None)
