"""Masking of tokens (Devlin et al. 2019, section 3.1), drawn again at each call."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from transduce.errors import SettingError
from transduce.sequence import Padded
from transduce.settings.sections import section
from transduce.text.tokenizer import SPECIAL_TOKENS

_BYTE = re.compile("<0x[0-9A-F]{2}>")
_SPACE = "▁"  # how tokens show a space before them
_CONTINUED = "##"  # how WordPiece shows that a token goes on with a word
Share = Annotated[float, Field(ge=0, le=1)]


@section
class MaskingConfig:
    """Selection and replacement of tokens to predict."""

    share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of each text's tokens to predict."""
    masked: Share = 0.8
    """Share of these replaced by MASK."""
    random: Share = 0.1
    """Share of these replaced by a random token; the rest stays unchanged."""
    whole_words: bool = False
    """Mask all tokens of a word or none.  A word begins after a space, as in WordPiece, with a
    Chinese character, or with punctuation."""

    def __post_init__(self) -> None:
        if self.masked + self.random > 1:
            raise SettingError("masking.masked and masking.random must not add up to more than 1")


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


def begin_words(shown: Sequence[str]) -> list[bool]:
    """For each token of a vocabulary, given as text: True if a word begins with it."""
    words = shown[len(SPECIAL_TOKENS) :]
    if not any(token.startswith(_SPACE) for token in words):
        if any(token.startswith(_CONTINUED) and len(token) > 2 for token in words):
            return [not token.startswith(_CONTINUED) for token in shown]
        if any(len(token) > 1 for token in words):  # symbols, each of which stands for itself
            return [True] * len(shown)
    return [not _is_letter(token[:1]) and not _BYTE.fullmatch(token) for token in shown]


def hold_spaces(shown: Sequence[str]) -> bool:
    """True if tokens include the space before them, as in SentencePiece and byte-level BPE."""
    words = shown[len(SPECIAL_TOKENS) :]
    return any(token.startswith(_SPACE) and len(token) > 1 for token in words)


def goes_on(shown: Sequence[str]) -> list[bool]:
    """For each token as text: True if it continues text without a space, as "ing" and "##ing";
    single characters do not, even after the end of a word."""
    if hold_spaces(shown):
        return [not token.startswith(_SPACE) for token in shown]
    return [token.startswith(_CONTINUED) and len(token) > 2 for token in shown]


def _is_letter(character: str) -> bool:
    if not character or "\u3400" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff":
        return False
    return unicodedata.category(character)[0] in "LNM"
