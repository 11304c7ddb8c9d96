"""Subword regularisation: another segmentation of a text in each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from transduce.errors import SettingError
from transduce.text.subword import SubwordTokenizer
from transduce.text.tokenizer import Tokenizer

Alpha = Annotated[float, Field(ge=0, le=1)]
"""A setting: strength, as `SubwordTokenizer.sample_batch` has it; 0 is the plain segmentation."""
SAMPLED_KINDS = ("bpe", "unigram", "file")


class SegmentationSampler:
    """Cuts texts into other subwords than `encode` does, given as the ids that it gave."""

    def __init__(self, tokenizer: SubwordTokenizer, alpha: float) -> None:
        """alpha: strength, as `SubwordTokenizer.sample_batch` has it."""
        self.tokenizer = tokenizer
        self.alpha = alpha

    def draw(self, rows: Sequence[Sequence[int]], seed: int) -> list[list[int]]:
        """Other ids of the texts that `rows` are ids of; the same for the same seed.

        PAD, BOS and EOS in the rows are passed over.
        """
        texts = [self.tokenizer.decode(row) for row in rows]
        return self.tokenizer.sample_batch(texts, self.alpha, seed)

    def room(
        self, lengths: NDArray[np.integer[Any]], rows: Sequence[Sequence[int]]
    ) -> NDArray[np.int64]:
        """(n,) tokens that few of the segmentations drawn exceed, where plain ones have `lengths`.

        It is the mean plus twice the standard deviation, both as `rows` of ids show them; never
        less than the plain length.
        """
        drawn = self.draw(rows, seed=0)
        after = np.array([len(ids) for ids in drawn], np.float64)
        before = np.array([max(1, len(ids)) for ids in rows], np.float64)
        growth = after.sum() / before.sum()
        # Each token adds to the variance alike.
        spread = np.sqrt(np.mean((after - growth * before) ** 2 / before))
        room = np.ceil(growth * lengths + 2 * spread * np.sqrt(lengths)).astype(np.int64)
        found: NDArray[np.int64] = np.maximum(room, lengths)
        return found


def check_sampling(setting: str, alpha: float, kind: str) -> None:
    """Raises SettingError where a tokenizer of some kind is to be sampled from, and cannot be."""
    if alpha and kind not in SAMPLED_KINDS:
        raise SettingError(
            f"{setting} = {alpha:g} needs a tokenizer of kind 'bpe' or 'unigram'; one of kind "
            f"{kind!r} has a single way to cut a text"
        )


def sampler_for(setting: str, alpha: float, tokenizer: Tokenizer) -> SegmentationSampler | None:
    """What draws segmentations; None for an alpha of 0.

    Raises SettingError where the tokenizer, as that of another run, cannot be sampled from.
    """
    if not alpha:
        return None
    if not isinstance(tokenizer, SubwordTokenizer):
        raise SettingError(
            f"{setting} = {alpha:g} needs a tokenizer of kind 'bpe' or 'unigram', which that of "
            "another run is not; leave the setting out"
        )
    return SegmentationSampler(tokenizer, alpha)
