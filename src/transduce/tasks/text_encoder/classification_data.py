"""Labelled texts of a recipe, as batches for a classifier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import RowBatch, TokenBatches
from transduce.data.labelled import LabelledText
from transduce.sequence import Padded
from transduce.support.work import chunks
from transduce.tasks.text_batches import EncodedTexts
from transduce.tasks.text_inputs import encode_counting_cuts, warn_of_cuts
from transduce.text import Tokenizer

READ_TOGETHER = 4096
"""Examples that are read, and made tokens of, together."""


@dataclass(frozen=True)
class LabelBatch(RowBatch):
    """Some examples as the model reads them.

    tokens: (b, t), or (b, t, 2) with segments.  labels: (b,) numbers of the right labels, negative
    for labels that training never saw.
    """

    tokens: Padded
    labels: Tensor


class EncodedExamples:
    """Examples of a split as token ids and numbers of labels, in memory.

    unseen: labels that are not among those known, which have the numbers -1, -2, ….  of_blanks: the
    labels of blank texts, which are left out.
    """

    def __init__(
        self,
        examples: Iterable[LabelledText],
        tokenizer: Tokenizer,
        labels: Sequence[str],
        max_length: int,
    ) -> None:
        numbers = {label: i for i, label in enumerate(labels)}
        n_known = len(numbers)
        self.texts = EncodedTexts()
        indices: list[int] = []
        n_cut = 0
        self.of_blanks: list[str] = []
        for examples_read in chunks(examples, READ_TOGETHER):
            chunk = [example for example in examples_read if not example.blank]
            self.of_blanks += (example.label for example in examples_read if example.blank)
            inputs = [example.texts for example in chunk]
            rows, cut = encode_counting_cuts(tokenizer, inputs, max_length)
            n_cut += cut
            self.texts.add(rows)
            for example in chunk:
                number = numbers.setdefault(example.label, len(numbers))
                indices.append(number if number < n_known else n_known - 1 - number)
        warn_of_cuts(n_cut, len(indices), max_length)
        self.labels = np.array(indices, np.int64)
        self.unseen = list(numbers)[n_known:]

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, segmented: bool, tokens: int, seed: int) -> TokenBatches[LabelBatch]:
        """All examples, in batches of at most `tokens` positions; optionally with segments."""

        def assemble(rows: NDArray[np.int64]) -> LabelBatch:
            labels = torch.from_numpy(self.labels[rows])
            return LabelBatch(rows, self.texts.padded(rows, segmented), labels)

        widths = self.texts.lengths
        return TokenBatches((widths, widths), assemble, tokens, seed)
