"""Masked rows packed into one shape, with the places of a fixed number of predictions."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.data.masking import Masked
from transduce.data.one_shape import MULTIPLE, OneShape
from transduce.sequence import Padded, moved


class PackedMasks(NamedTuple):
    """Masked tokens in one row.

    tokens: (1, n), or (1, n, 2) with segments.  places: (k,) positions to predict, and any beyond
    their number.  targets: (k,) the right tokens, -1 beyond their number.  share: (), the aim of
    masking, `target_tokens`, divided by their number.
    """

    tokens: Padded
    places: Tensor
    targets: Tensor
    share: Tensor
    target_tokens: int

    def to(self, device: torch.device | str) -> PackedMasks:
        """The same on another device."""
        places, targets, share = (moved(part, device) for part in self[1:4])
        return PackedMasks(self.tokens.to(device), places, targets, share, self.target_tokens)


def pack_masks(masked: Masked, aim: int, shape: OneShape, most: int) -> PackedMasks:
    """Pack masked rows; `most` predictions, or where there are more, a multiple that has room."""
    labels = torch.full_like(masked.at, -1, dtype=torch.long)
    labels[masked.at] = masked.targets
    ids = masked.tokens.values.view(*labels.shape, -1)  # (b, t, 1), or with segments (b, t, 2)
    (row,) = shape.pack(masked.tokens.with_values(torch.cat([ids, labels[..., None]], 2)))
    places = (row.real[0] & (row.values[0, :, -1] >= 0)).nonzero()[:, 0]
    targets, count = row.values[0, places, -1], len(places)
    missing = max(most, count + -count % MULTIPLE) - count
    values = row.values[..., :-1].view(*row.real.shape, *masked.tokens.values.shape[2:])
    return PackedMasks(
        row.with_values(values.contiguous()),
        F.pad(places, (0, missing)),
        F.pad(targets, (0, missing), value=-1),
        torch.tensor(aim / max(1, count)),
        aim,
    )
