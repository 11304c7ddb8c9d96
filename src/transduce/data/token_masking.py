"""Masking of tokens (Devlin et al. 2019, section 3.1), drawn again at each step, also in packed
rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import MULTIPLE, OneShape, beside, of_each, parted
from transduce.data.masking import MaskingConfig, begin_words
from transduce.sequence import Padded, moved
from transduce.text.tokenizer import SPECIAL_TOKENS


class Masked(NamedTuple):
    """Masked input and the tokens to predict.

    tokens: (b, t), or (b, t, 2) with segments.  at: (b, t) True at tokens to predict.
    targets: (k,) the right tokens there, row by row.
    """

    tokens: Padded
    at: Tensor
    targets: Tensor


class Masking:
    """Mask random tokens."""

    def __init__(self, config: MaskingConfig, shown: Sequence[str]) -> None:
        """shown: each token of the vocabulary as text; MASK has the next id."""
        self.config = config
        self.mask = len(shown)
        self._begins = torch.tensor([*begin_words(shown), True])

    def aim(self, ids: NDArray[Any] | Sequence[int]) -> int:
        """Number of tokens to predict in a row of ids; at least 1 if possible."""
        n = int((np.asarray(ids) >= len(SPECIAL_TOKENS)).sum())
        return max(1, round(self.config.share * n)) if n else 0

    def __call__(self, tokens: Padded, generator: torch.Generator | None = None) -> Masked:
        """Mask ids (b, t), or (b, t, 2) with segments, on the CPU; single tokens exactly as often
        as `aim` gives, whole words about as often."""
        values = tokens.values.clone()
        ids = values if values.dim() == 2 else values[..., 0]
        can_be = tokens.real & (ids >= len(SPECIAL_TOKENS))
        at = self._choose(ids, can_be, generator)
        targets = ids[at]
        chance = torch.rand(ids.shape, generator=generator)
        others = torch.randint(len(SPECIAL_TOKENS), self.mask, ids.shape, generator=generator)
        masked = chance < self.config.masked
        random = ~masked & (chance < self.config.masked + self.config.random)
        ids[at & masked] = self.mask
        ids[at & random] = others[at & random]
        return Masked(tokens.with_values(values), at, targets)

    def _choose(self, ids: Tensor, can_be: Tensor, generator: torch.Generator | None) -> Tensor:
        """(b, t) True at tokens of words drawn at random until there are about enough."""
        begins = can_be
        if self.config.whole_words:
            after_special = torch.ones_like(can_be)
            after_special[:, 1:] = ~can_be[:, :-1]
            begins = can_be & (self._begins[ids] | after_special)
        word = (begins.cumsum(1) - 1).clamp(min=0)  # (b, t) number of the word of each token
        counts = begins.sum(1)
        width = max(1, int(counts.max()))
        sizes = torch.zeros(len(ids), width).scatter_add_(1, word, can_be.float())
        chance = torch.rand(sizes.shape, generator=generator)
        order = chance.masked_fill(torch.arange(width) >= counts[:, None], 2.0).argsort(1)
        ordered = sizes.gather(1, order)
        n = can_be.sum(1)
        aim = (self.config.share * n.double()).round().clamp(min=1)
        # A word that would go beyond the aim is taken if that is closer to it than going without.
        enough = ordered.cumsum(1) - ordered / 2 < aim[:, None]
        enough[:, 0] = True
        chosen = torch.zeros_like(enough).scatter_(1, order, enough)
        return chosen.gather(1, word) & can_be


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

    aim: expected number of predictions, which with their true number gives the share.  shape: packs
    the rows.  follows: (b,) for pairs of sentences.
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
