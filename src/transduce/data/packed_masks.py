"""Masked rows packed into one shape, with the places of a fixed number of predictions."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.data.one_shape import MULTIPLE, OneShape, beside, of_each, parted
from transduce.data.token_masking import Masked
from transduce.sequence import Padded, moved


class PackedMasks(NamedTuple):
    """Masked tokens in one row.

    tokens: (1, n), or (1, n, 2) with segments.  places: (k,) positions to predict, and any beyond
    their number.  targets: (k,) the right tokens, -1 beyond their number.  share: (), the aim of
    masking, `target_tokens`, divided by their number.  follows: (sequences,) 1 or 0 for pairs of
    sentences, -1 without any.  pair_share: (), `target_tokens` divided by the number of pairs.
    """

    tokens: Padded
    places: Tensor
    targets: Tensor
    share: Tensor
    follows: Tensor
    pair_share: Tensor
    target_tokens: int

    def to(self, device: torch.device | str) -> PackedMasks:
        """The same on another device."""
        places, targets, share, follows, pair_share = (moved(x, device) for x in self[1:6])
        tokens, count = self.tokens.to(device), self.target_tokens
        return PackedMasks(tokens, places, targets, share, follows, pair_share, count)


def pack_masks(
    masked: Masked, aim: int, shape: OneShape, most: int, follows: Tensor | None = None
) -> PackedMasks:
    """Pack masked rows; `most` predictions, or where there are more, a multiple that has room.

    follows: (b,) for pairs of sentences.
    """
    labels = torch.full_like(masked.at, -1, dtype=torch.long)
    labels[masked.at] = masked.targets
    tokens, labels = parted(*shape.pack(beside(masked.tokens, labels)))
    places = (tokens.real & (labels >= 0))[0].nonzero()[:, 0]
    targets, count = labels[0, places], len(places)
    missing = max(most, count + -count % MULTIPLE) - count
    return PackedMasks(
        tokens,
        F.pad(places, (0, missing)),
        F.pad(targets, (0, missing), value=-1),
        torch.tensor(aim / max(1, count)),
        of_each(tokens, targets[:0] if follows is None else follows),
        torch.tensor(aim / len(masked.at)),
        aim,
    )
