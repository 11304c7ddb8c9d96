"""Pairs of texts of a recipe, as batches for a contrastive loss."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import RowBatch, TokenBatches
from transduce.data.labelled import LabelledConfig, read_scored, read_texts
from transduce.sequence import Padded
from transduce.support.work import chunks
from transduce.tasks.recipe import Split
from transduce.tasks.splits import own_section, read_split
from transduce.tasks.text_batches import EncodedTexts
from transduce.tasks.text_encoder.recipes import EmbeddedTextConfig, EmbeddingData, scored_pairs
from transduce.tasks.text_inputs import encode_counting_cuts, warn_of_cuts
from transduce.text import Tokenizer

logger = logging.getLogger("transduce")

READ_TOGETHER = 4096
"""Pairs that are read, and made tokens of, together."""

TextPair = tuple[str, str]


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

    def __init__(
        self, pairs: Iterable[TextPair], tokenizer: Tokenizer, text: EmbeddedTextConfig
    ) -> None:
        self._rows = EncodedTexts()
        numbers: dict[str, int] = {}
        index_pairs: list[tuple[int, int]] = []
        self.n_blank = n_cut = 0
        for read in chunks(pairs, READ_TOGETHER):
            chunk = [pair for pair in read if all(side.strip() for side in pair)]
            self.n_blank += len(read) - len(chunk)
            new = list(dict.fromkeys(t for pair in chunk for t in pair if t not in numbers))
            numbers.update(zip(new, range(len(numbers), len(numbers) + len(new)), strict=True))
            prefixed = [(text.prefix + content,) for content in new]
            rows, cut = encode_counting_cuts(tokenizer, prefixed, text.max_length)
            self._rows.add(rows)
            n_cut += cut
            index_pairs += ((numbers[a], numbers[b]) for a, b in chunk)
        warn_of_cuts(n_cut, len(numbers), text.max_length)
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
