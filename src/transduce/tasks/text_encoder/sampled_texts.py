"""Subword sampling for encoder-only tasks: other segmentations in each epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from transduce.data.batches import TokenBatches
from transduce.data.sampling import SampledBatches, sampled_widths, tried_items
from transduce.sequence import Padded
from transduce.tasks.text_batches import EncodedTexts, rows_padded
from transduce.tasks.text_inputs import Row, with_special_tokens
from transduce.text import BOS, EOS
from transduce.text.sampling import SegmentationSampler


class HasRows(Protocol):
    """Batch with the numbers of its items."""

    @property
    def rows(self) -> NDArray[np.integer[Any]]: ...  # noqa: D102


B = TypeVar("B", bound=HasRows)


def sampled_batches(
    plain: TokenBatches[B],
    texts: EncodedTexts,
    sampler: SegmentationSampler | None,
    max_length: int,
    segmented: bool,
    with_tokens: Callable[[B, Padded], B],
) -> TokenBatches[B] | SampledBatches[B]:
    """Batches with sampled segmentations of their texts; unchanged without a sampler.

    max_length: tokens of a row, special tokens included. segmented: the model uses segments.
    with_tokens: replaces the tokens of a batch, (b, t) or (b, t, 2).
    """
    if sampler is None:
        return plain

    def redraw(batch: B, seed: int) -> B:
        rows = [texts.row(i) for i in batch.rows]
        share = plain.batch_tokens // len(rows)
        drawn = resegmented(rows, sampler, max_length, share, seed)
        return with_tokens(batch, rows_padded(drawn, segmented))

    tried = texts.padded(tried_items(len(texts)), segmented=False)
    widths = sampled_widths(texts.lengths, tried, sampler, 2, max_length - 2)
    return SampledBatches(plain.with_widths((widths, widths)), redraw)


def resegmented(
    rows: Sequence[Row], sampler: SegmentationSampler, max_length: int, share: int, seed: int
) -> list[Row]:
    """Resample the segmentation of rows, truncated at `max_length` as in `with_special_tokens`.

    share: longer rows stay unchanged.  Equal seeds give equal rows.
    """
    texts = [_texts(row) for row in rows]
    drawn = iter(sampler.draw([ids for parts in texts for ids in parts], seed))
    sampled = []
    for row, parts in zip(rows, texts, strict=True):
        a, b = next(drawn), next(drawn) if len(parts) == 2 else None
        new = with_special_tokens(a, b, max_length, sampler.tokenizer.marks_between)
        sampled.append(new if len(new.ids) <= share else row)
    return sampled


def _texts(row: Row) -> list[list[int]]:
    """The ids of the texts of a row, one or two, without marks."""
    ids = [int(token) for token in row.ids]
    n_first = len(ids) - int(sum(row.segments))
    parts = [ids[:n_first], ids[n_first:]] if n_first < len(ids) else [ids]
    return [[token for token in part if token not in (BOS, EOS)] for part in parts]
