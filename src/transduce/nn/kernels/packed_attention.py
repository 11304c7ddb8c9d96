"""Attention within sequences side by side, by PyTorch's flash kernel for unequal lengths."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from transduce.sequence import Borders

LARGEST_HEAD = 256
WHOLE: dict[str, Any] = {"num_splits": 1} if torch.__version__ >= "2.13" else {}
"""Keys in one pass, so that a sentence gets the same in any batch."""


def packed_attention(
    query: Tensor, key: Tensor, value: Tensor, queries: Borders, keys: Borders, causal: bool
) -> Tensor:
    """Queries (b, h, t, d) over keys and values (b, h, s, d) -> (b, h, t, d), within borders.

    Positions outside the borders get any values, not even finite ones.  causal: borders of queries
    and keys are the same, and each query attends to keys up to itself.
    """
    from torch.nn.attention.varlen import varlen_attn  # takes a second to import

    rows = [part.transpose(1, 2).flatten(0, 1) for part in (query, key, value)]  # (b·t, h, d)
    mixed = varlen_attn(
        rows[0],
        rows[1],
        rows[2],
        queries.starts,
        keys.starts,
        queries.longest,
        keys.longest,
        window_size=(-1, 0) if causal else (-1, -1),
        **WHOLE,
    )
    assert isinstance(mixed, Tensor), "no log-sum-exp was asked for"
    b, h, t, d = query.shape
    return mixed.view(b, t, h, d).transpose(1, 2)


def refusal(device: torch.device, d_head: int, dtype: torch.dtype) -> str:
    """Reason why the kernel cannot be used; empty if it can."""
    if device.type != "cuda":
        return "attention by borders needs a GPU"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "the GPU is older than Ampere"
    if dtype not in (torch.bfloat16, torch.float16):
        return 'training.precision is "float32"'
    if d_head % 8 or d_head > LARGEST_HEAD:
        return f"heads are {d_head} wide, not a multiple of 8 up to {LARGEST_HEAD}"
    return ""
