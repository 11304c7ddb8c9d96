"""Pairs of texts of a recipe, as batches for a contrastive loss."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from transduce.data.batches import RowBatch, TokenBatches
from transduce.data.labelled import LabelledConfig, ScoredPair, read_scored, read_texts
from transduce.errors import DataError, SettingError
from transduce.sequence import Padded
from transduce.settings.sections import section
from transduce.support.work import chunks
from transduce.tasks.recipe import Split
from transduce.tasks.sections import SplitsConfig
from transduce.tasks.splits import check_own_data, own_section, read_split
from transduce.tasks.text_inputs import EncodedTexts, encode_counting_cuts, warn_of_cuts
from transduce.text import Tokenizer

logger = logging.getLogger("transduce")

READ_TOGETHER = 4096
"""Pairs that are read, and made tokens of, together."""

TextPair = tuple[str, str]


@section
class EmbeddingData(SplitsConfig):
    """Pairs of texts that belong together, and scored pairs to validate and to test with."""

    train: LabelledConfig | None = None
    """Pairs of texts that belong together.  Without `second`, a text is its own pair, and dropout
    alone makes its two vectors differ (SimCSE)."""
    min_score: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Minimum `label` of a training pair; pairs below it are not positive and are left out.
    By default all pairs are used, and their labels are not read."""
    valid: LabelledConfig | None = None
    """Pairs with their similarity as `label`; the vectors are measured by its rank correlation.
    By default, `hold_out` of the training pairs, measured by loss alone."""
    test: LabelledConfig | None = None

    def __post_init__(self) -> None:
        scored = {"valid": self.valid, "test": self.test}
        if self.min_score is not None:
            scored["train"] = self.train
        for name, split in scored.items():
            if split is not None and split.second is None:
                raise SettingError(
                    f"data.{name}: scored pairs need two texts; set `second` to the column of the "
                    "other text"
                )


def scored_pairs(config: EmbeddingData, split: Split) -> Iterator[ScoredPair]:
    """Stream the scored pairs of a split.  Raises DataError if it has none."""
    section = own_section(config, split)
    if section is None:
        check_own_data(config, split)
        raise DataError(
            f"the {split} pairs have no scores; set data.{split} to scored pairs, or give --source "
            'with lines "TEXT<tab>TEXT" and --reference with numbers'
        )
    return read_scored(section, Path(config.root))


def pairs_of(config: EmbeddingData, split: Split) -> Iterator[TextPair]:
    """Stream the pairs of a split; equal first texts are in the same split."""
    if own_section(config, split) is not None:
        return (pair.texts for pair in scored_pairs(config, split))

    def read(section: LabelledConfig, root: Path) -> Iterator[TextPair]:
        if config.min_score is None:
            return ((texts[0], texts[-1]) for texts in read_texts(section, root))
        scored = read_scored(section, root)
        return (pair.texts for pair in scored if pair.score >= config.min_score)

    return read_split(config, split, read, lambda pair: pair[0])


@dataclass(frozen=True)
class ContrastiveBatch(RowBatch):
    """Some pairs as the model reads them; each half of a batch has its own negatives.

    first, second: (b, t), or (b, t, 2) with segments.  texts: (b, 2) numbers of the texts, equal
    for equal texts.
    """

    first: Padded
    second: Padded
    texts: Tensor


class EncodedTextPairs:
    """Pairs of a split as token ids, in memory; pairs with a blank text are left out."""

    def __init__(self, pairs: Iterable[TextPair], tokenizer: Tokenizer, max_length: int) -> None:
        self._rows = EncodedTexts()
        numbers: dict[str, int] = {}
        index_pairs: list[tuple[int, int]] = []
        self.n_blank = n_cut = 0
        for read in chunks(pairs, READ_TOGETHER):
            chunk = [pair for pair in read if all(text.strip() for text in pair)]
            self.n_blank += len(read) - len(chunk)
            new = list(dict.fromkeys(t for pair in chunk for t in pair if t not in numbers))
            numbers.update(zip(new, range(len(numbers), len(numbers) + len(new)), strict=True))
            rows, cut = encode_counting_cuts(tokenizer, [(text,) for text in new], max_length)
            self._rows.add(rows)
            n_cut += cut
            index_pairs += ((numbers[a], numbers[b]) for a, b in chunk)
        warn_of_cuts(n_cut, len(numbers), max_length)
        self.texts = np.array(index_pairs, np.int64).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens (n,) of the first and of the second texts."""
        lengths = self._rows.lengths[self.texts]
        return lengths[:, 0], lengths[:, 1]

    def batches(self, segmented: bool, tokens: int, seed: int) -> TokenBatches[ContrastiveBatch]:
        """All pairs, in batches of at most `tokens` positions a side."""

        def assemble(rows: NDArray[np.int64]) -> ContrastiveBatch:
            texts = self.texts[rows]
            first, second = (self._rows.padded(texts[:, i], segmented) for i in range(2))
            return ContrastiveBatch(rows, first, second, torch.from_numpy(texts))

        return TokenBatches(self.lengths, assemble, tokens, seed)
