"""Labelled texts of a recipe, as batches for a classifier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from transduce.data.batches import RowBatch, TokenBatches
from transduce.data.labelled import LabelledConfig, LabelledText, read_labelled
from transduce.errors import SettingError
from transduce.sequence import Padded
from transduce.settings.sections import section
from transduce.support.work import chunks
from transduce.tasks.recipe import Split
from transduce.tasks.sections import SplitsConfig
from transduce.tasks.splits import read_split
from transduce.tasks.text_inputs import EncodedTexts, encode_counting_cuts, warn_of_cuts
from transduce.text import Tokenizer

READ_TOGETHER = 4096
"""Examples that are read, and made tokens of, together."""


@section
class LabelledData(SplitsConfig):
    """Labelled texts for training, validation and test."""

    train: LabelledConfig | None = None
    valid: LabelledConfig | None = None
    test: LabelledConfig | None = None
    hold_out: Annotated[float, Field(gt=0, le=0.25)] = 0.1
    """Share of the texts that is set aside where no file is given; equal texts stay together."""
    pairs: bool | None = None
    """Return True if an input is two texts, by the setting `second` of the data if there is any."""

    def __post_init__(self) -> None:
        if len({self.pairs, *self._pairs_of_splits} - {None}) > 1:
            raise SettingError(
                "data: train, valid and test must all have a second text, or none of them; make "
                "`second` and `pairs` agree"
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the texts that make an input."""
        return ("text", "second") if self.pairs or any(self._pairs_of_splits) else ("text",)

    @property
    def _pairs_of_splits(self) -> list[bool]:
        splits = [split for split in (self.train, self.valid, self.test) if split is not None]
        return [split.second is not None for split in splits]


def read_examples(config: LabelledData, split: Split) -> Iterator[LabelledText]:
    """Stream the labelled texts of a split; equal first texts are in the same split.

    Raises DataError if reading fails.
    """
    return read_split(config, split, read_labelled, lambda example: example.texts[0])


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
