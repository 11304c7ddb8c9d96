"""Attention masks, decided in one place.

A mask costs time, and an unneeded one can cost the fused kernel, so this file asks in turn:
is nothing hidden (no mask), is only the future hidden (`causal`, a flag of the kernel), or
must each pair of positions be told (`allowed`)?  In a mask, True means "may look".
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from transduce.sequence import Padded


class Mask(NamedTuple):
    """What a block of queries may look at.

    allowed: bool, broadcastable to (b, h, t, s); None when every key may be looked at.
    causal:  query i looks at keys 0..i only; given instead of `allowed`, never with it.
    bias:    float, broadcastable to (b, h, t, s), added to the scores; None for none.
    sum:     all of these as one such bias, -inf where nothing may be looked at, made once for the
             many layers that look through one mask; None where it has not been made.
    """

    allowed: Tensor | None = None
    causal: bool = False
    bias: Tensor | None = None
    sum: Tensor | None = None

    def summed(self, n_queries: int, n_keys: int, like: Tensor) -> Mask:
        """The same with its `sum`, of the type and on the device of `like`."""
        hidden = self.explicit(n_queries, n_keys, like.device)
        if hidden is None:
            return self._replace(sum=self.bias)
        bias = like.new_zeros(()) if self.bias is None else self.bias
        return self._replace(sum=torch.where(hidden, bias, float("-inf")))

    def in_float32(self) -> Mask:
        """The same, with its `bias` and `sum` in float32."""
        bias, sum_ = (part if part is None else part.float() for part in (self.bias, self.sum))
        return self._replace(bias=bias, sum=sum_)

    def explicit(self, n_queries: int, n_keys: int, device: torch.device) -> Tensor | None:
        """The bool tensor (…, t, s) that this mask stands for, or None when all is allowed."""
        return causal(n_queries, n_keys, device) if self.causal else self.allowed


def causal(n_queries: int, n_keys: int, device: torch.device) -> Tensor:
    """(t, s) bool: the last query sees all keys, each one before it one key fewer."""
    ones = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return ones.tril(n_keys - n_queries)


def key_mask(keys: Padded, bias: Tensor | None = None) -> Mask:
    """Every query may look at every real key: self-attention of an encoder, cross-attention."""
    if keys.packed is not None:
        allowed = same_sequence(keys.packed) & keys.real[:, None, :]
        return Mask(allowed=any_key_allowed(allowed)[:, None], bias=bias)  # (b, 1, s, s)
    if keys.padding == "none":
        return Mask(bias=bias)
    return Mask(allowed=keys.real[:, None, None, :], bias=bias)  # (b, 1, 1, s)


def same_sequence(packed: Tensor) -> Tensor:
    """(b, s, s) bool: whether two positions of a row belong to one sequence (see `Padded`)."""
    return packed[:, :, None] == packed[:, None, :]


def causal_mask(
    real: Tensor,
    padding: str,
    n_queries: int,
    bias: Tensor | None = None,
    packed: Tensor | None = None,
) -> Mask:
    """Each of the last `n_queries` positions may look at itself and at what is before it.

    real: (b, s) bool over past and present; padding: where padding may stand in it.
    With padding only on the right a real query never sees padding, as that lies in its future.
    packed: (b, s), as in `Padded`.
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
    """What positions look at that come after others: as `allowed` (b, t, s) says, or all before.

    like: of the type and on the device that attention is computed in.
    """
    if allowed is not None:
        mask = Mask(allowed=allowed[:, None], bias=bias)
    elif n_queries > 1:
        mask = Mask(allowed=causal(n_queries, n_keys, like.device), bias=bias)
    else:
        return Mask(bias=bias)
    return mask.summed(n_queries, n_keys, like)


def any_key_allowed(allowed: Tensor) -> Tensor:
    """A query at padding would see nothing, and softmax over nothing is not a number."""
    return allowed | ~allowed.any(-1, keepdim=True)
