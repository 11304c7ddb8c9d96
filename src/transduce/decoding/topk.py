"""Top-k of each row, exactly and repeatably: ties, common in 16 bits, go to the lower index, where
the choice of `torch.topk` may depend on device and batch."""

from __future__ import annotations

import torch
from torch import Tensor

from transduce.sequence import is_at_hand

GROUP = 64
FEW = 1 << 14
"""Values searched in a round; for fewer, the calls of two rounds would cost more."""


def topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (l, x), best first: values and indices (l, count).

    Wide rows are searched first for the groups with the largest maxima, then inside these.  That is
    exact: had a value of another group a right to be chosen, each of the `count` chosen groups
    would hold one that goes before it.
    """
    groups = values.shape[1] // GROUP
    if groups < 2 * count or values.numel() <= FEW:
        return _topk(values, count)
    split = groups * GROUP
    grouped = values[:, :split].view(-1, groups, GROUP)  # (l, x) -> (l, groups, GROUP)
    # in ascending order, so that the order of candidates is the order of indices
    chosen = _topk(grouped.amax(2), count)[1].sort(1).values.unsqueeze(2)
    inside = grouped.gather(1, chosen.expand(-1, -1, GROUP)).flatten(1)
    index = (chosen * GROUP + torch.arange(GROUP, device=values.device)).flatten(1)
    if split < values.shape[1]:
        inside = torch.cat([inside, values[:, split:]], 1)
        rest = torch.arange(split, values.shape[1], device=values.device)
        index = torch.cat([index, rest.expand(len(values), -1)], 1)
    top, at = _topk(inside, count)
    return top, index.gather(1, at)


def _topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if not is_at_hand(values):  # instead of looking for ties
        ordered = values.sort(dim=1, descending=True, stable=True)
        return ordered.values[:, :count], ordered.indices[:, :count]
    top, index = values.topk(min(count + 1, values.shape[1]))
    if not bool((top[:, 1:] == top[:, :-1]).any()):  # mostly, and then nothing is left open
        return top[:, :count], index[:, :count]
    edge = top[:, count - 1 : count]
    tied = (top[:, count:] == edge) & (edge > float("-inf"))
    index = index[:, :count]
    if bool(tied.any()):  # topk took some of the equals: take the first of them instead
        every = torch.arange(values.shape[1], device=values.device)
        key = torch.where(values == edge, every, len(every))
        key = torch.where(values > edge, every - len(every), key)
        index = key.topk(count, largest=False).indices
    index = index.sort(1).values
    top, order = values.gather(1, index).sort(dim=1, descending=True, stable=True)
    return top, index.gather(1, order)
