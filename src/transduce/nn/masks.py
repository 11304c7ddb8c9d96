"""Attention masks, decided in a single place; True means "attends".

A mask costs time, and may prevent the fused kernel.  Cases in order: nothing is masked, only the
future is masked (`causal`, a flag of the kernel), or an explicit mask of position pairs
(`allowed`). Packed rows with borders have the borders alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from transduce.sequence import Borders, Padded


class Mask(NamedTuple):
    """Keys visible to a block of queries.

    allowed: bool, broadcastable to (b, h, t, s); None if all keys are visible.
    causal:  query i attends to keys 0..i only; given instead of `allowed`, never with it.
    bias:    float, broadcastable to (b, h, t, s), added to the scores; None without a bias.
    sum:     all of these combined into a bias, -inf at masked positions, computed once for all
             layers; None if not computed.
    queries, keys: borders of packed rows: queries of a sequence attend to keys of the sequence of
             the same number, all of them or, if `causal`, the earlier ones; None without borders.
    """

    allowed: Tensor | None = None
    causal: bool = False
    bias: Tensor | None = None
    sum: Tensor | None = None
    queries: Borders | None = None
    keys: Borders | None = None

    def summed(self, n_queries: int, n_keys: int, like: Tensor) -> Mask:
        """Mask with `sum` computed, of the type and on the device of `like`.

        n_queries, n_keys: t and s, the number of positions on both sides.
        """
        hidden = self.explicit(n_queries, n_keys, like.device)
        if hidden is None:
            return self._replace(sum=self.bias)
        bias = like.new_zeros(()) if self.bias is None else self.bias
        return self._replace(sum=torch.where(hidden, bias, float("-inf")))

    def in_float32(self) -> Mask:
        """Mask with `bias` and `sum` in float32."""
        bias, sum_ = (part if part is None else part.float() for part in (self.bias, self.sum))
        return self._replace(bias=bias, sum=sum_)

    def explicit(self, n_queries: int, n_keys: int, device: torch.device) -> Tensor | None:
        """Mask as a bool tensor (…, t, s), or None if all is allowed.

        n_queries, n_keys: t and s.  device: of the result.
        """
        if self.queries is not None and self.keys is not None:
            return any_key_allowed(_within(self.queries, self.keys, n_queries, n_keys, self.causal))
        return causal(n_queries, n_keys, device) if self.causal else self.allowed


def causal(n_queries: int, n_keys: int, device: torch.device) -> Tensor:
    """(t, s) bool: the last query attends to all keys, each earlier query to a key fewer.

    n_queries, n_keys: t and s, at most s queries.  device: of the result.
    """
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return ones.tril(n_keys - n_queries)


def _within(queries: Borders, keys: Borders, t: int, s: int, causal: bool) -> Tensor:
    """(t, s) bool: True within a sequence, and if `causal`, for keys up to the query."""
    sides = []
    for borders, n in ((queries, t), (keys, s)):
        at = torch.arange(n, device=borders.starts.device, dtype=borders.starts.dtype)
        sides.append((at, torch.searchsorted(borders.starts[1:], at, right=True)))
    (query_at, of_query), (key_at, of_key) = sides
    allowed = of_query[:, None] == of_key
    return allowed & (key_at <= query_at[:, None]) if causal else allowed


def key_mask(keys: Padded, bias: Tensor | None = None) -> Mask:
    """Mask of padding keys only: self-attention of an encoder, cross-attention."""
    if keys.borders is not None:
        assert bias is None, "attention by borders adds no bias"
        return Mask(queries=keys.borders, keys=keys.borders)
    if keys.packed is not None:
        allowed = same_sequence(keys.packed) & keys.real[:, None, :]
        return Mask(allowed=any_key_allowed(allowed)[:, None], bias=bias)  # (b, 1, s, s)
    if keys.padding == "none":
        return Mask(bias=bias)
    return Mask(allowed=keys.real[:, None, None, :], bias=bias)  # (b, 1, 1, s)


def same_sequence(packed: Tensor) -> Tensor:
    """(b, s, s) bool: True if two positions of a row belong to the same sequence (see `Padded`)."""
    return packed[:, :, None] == packed[:, None, :]


def whole_mask(target: Padded, bias: Tensor | None = None) -> Mask:
    """Causal mask of positions without a past: each attends to itself and to earlier ones."""
    if target.borders is not None:
        return key_mask(target, bias)._replace(causal=True)
    n = target.real.shape[1]
    return causal_mask(target.real, target.padding, n, bias, target.packed)


def causal_mask(
    real: Tensor,
    padding: str,
    n_queries: int,
    bias: Tensor | None = None,
    packed: Tensor | None = None,
) -> Mask:
    """Causal mask: each of the last `n_queries` positions attends to itself and to earlier ones.

    real, packed: (b, s) over past and present, as in `Padded`.  With padding only on the right,
    real queries never attend to padding, which lies in their future.
    """
    n_keys = real.shape[1]
    if packed is not None:
        assert n_queries == n_keys, "packed rows are read in one pass"
        allowed = causal(n_keys, n_keys, real.device) & same_sequence(packed) & real[:, None, :]
        return Mask(allowed=any_key_allowed(allowed)[:, None], bias=bias)
    if padding != "any":
        if n_queries == 1:
            return Mask(bias=bias)
        if n_queries == n_keys and bias is None:
            return Mask(causal=True)
        return Mask(allowed=causal(n_queries, n_keys, real.device), bias=bias)
    allowed = causal(n_queries, n_keys, real.device) & real[:, None, :]  # (b, t, s)
    return Mask(allowed=any_key_allowed(allowed)[:, None], bias=bias)


def past_mask(
    allowed: Tensor | None, n_queries: int, n_keys: int, bias: Tensor | None, like: Tensor
) -> Mask:
    """Mask of positions that continue others, by `allowed` (b, t, s), or all before them.

    n_queries, n_keys: t and s.  bias: added to the scores; None for none.  like: tensor of the type
    and on the device of the result.
    """
    if allowed is not None:
        mask = Mask(allowed=allowed[:, None], bias=bias)
    elif n_queries > 1:
        mask = Mask(allowed=causal(n_queries, n_keys, like.device), bias=bias)
    else:
        return Mask(bias=bias)
    return mask.summed(n_queries, n_keys, like)


def any_key_allowed(allowed: Tensor) -> Tensor:
    """Let queries at padding attend to some key, since a softmax over nothing is NaN."""
    return allowed | ~allowed.any(-1, keepdim=True)
