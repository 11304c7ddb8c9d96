"""Subword regularisation: another segmentation of a text in each epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from transduce.errors import SettingError
from transduce.text.subword import SubwordTokenizer
from transduce.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Alpha = Annotated[float, Field(ge=0, le=1)]
"""Sampling strength, as in `SubwordTokenizer.sample_batch`; 0 is the plain segmentation."""
SAMPLED_KINDS = ("bpe", "unigram", "file")


class SegmentationSampler:
    """Subword regularisation: replace the ids from `encode` by a sampled segmentation."""

    def __init__(self, tokenizer: SubwordTokenizer, alpha: float) -> None:
        """alpha: sampling strength, as in `SubwordTokenizer.sample_batch`."""
        self.tokenizer = tokenizer
        self.alpha = alpha

    def draw(self, rows: Sequence[Sequence[int]], seed: int) -> list[list[int]]:
        """Sample new ids for the texts of `rows`, without PAD, BOS and EOS; equal seeds give equal
        ids."""
        texts = [self.tokenizer.decode(row) for row in rows]
        return self.tokenizer.sample_batch(texts, self.alpha, seed)

    def room(
        self, lengths: NDArray[np.integer[Any]], rows: Sequence[Sequence[int]]
    ) -> NDArray[np.int64]:
        """(n,) tokens that few sampled segmentations exceed, for plain segmentations of `lengths`:
        the mean plus twice the standard deviation, both estimated from `rows` of ids."""
        import numpy as np

        drawn = self.draw(rows, seed=0)
        after = np.array([len(ids) for ids in drawn], np.float64)
        before = np.array([max(1, len(ids)) for ids in rows], np.float64)
        growth = after.sum() / before.sum()
        # Each token adds to the variance alike.
        spread = np.sqrt(np.mean((after - growth * before) ** 2 / before))
        room = np.ceil(growth * lengths + 2 * spread * np.sqrt(lengths)).astype(np.int64)
        capacity: NDArray[np.int64] = np.maximum(room, lengths)
        return capacity


def check_sampling(setting: str, alpha: float, kind: str) -> None:
    """Raises SettingError if sampling is set for a kind of tokenizer without it."""
    if alpha and kind not in SAMPLED_KINDS:
        raise SettingError(
            f"{setting} = {alpha:g} needs a tokenizer of kind 'bpe' or 'unigram'; kind "
            f"{kind!r} has only one segmentation of a text"
        )


def sampler_for(setting: str, alpha: float, tokenizer: Tokenizer) -> SegmentationSampler | None:
    """Sampler for an alpha; None for 0.  Raises SettingError for a tokenizer without sampling."""
    if not alpha:
        return None
    if not isinstance(tokenizer, SubwordTokenizer):
        raise SettingError(
            f"{setting} = {alpha:g} needs a tokenizer of kind 'bpe' or 'unigram', but the other "
            "run has another kind; remove the setting"
        )
    return SegmentationSampler(tokenizer, alpha)
