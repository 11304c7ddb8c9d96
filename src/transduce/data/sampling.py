"""Batches with new subword segmentations of the texts in each epoch.

Batches are planned in advance, by lengths that sampled rows seldom exceed; a row that would exceed
its share of the batch keeps its plain segmentation.  Segmentations use random numbers that depend
only on the seed and the position in the data, so a run can be resumed anywhere.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from transduce.data.batches import DataState, PairBatch, TokenBatches, pad_rows
from transduce.sequence import Padded
from transduce.text.subword import SegmentationSampler
from transduce.text.tokenizer import BOS

Ints = NDArray[np.integer[Any]]
B = TypeVar("B")

TRIED_ITEMS = 2000
"""Number of items, spread evenly, used to estimate the lengths of sampled rows."""


class SampledBatches(Generic[B]):
    """Wrap batches, and resample each when it is made."""

    def __init__(self, plain: TokenBatches[B], redraw: Callable[[B, int], B]) -> None:
        """redraw: maps a plain batch and a seed in [0, 2^32) to the training batch."""
        self.plain = plain
        self.redraw = redraw
        self.one_shape = plain.one_shape

    def iterate(self, state: DataState | None = None) -> Iterator[tuple[B, DataState]]:
        """Yield batches endlessly, as `TokenBatches.iterate` does."""
        for batch, after in self.plain.iterate(state):
            chance = np.random.SeedSequence([self.plain.seed, after.epoch, after.position])
            yield self.redraw(batch, int(chance.generate_state(1)[0])), after

    def checksum(self) -> str:
        """Checksum of the number of items and their plain lengths."""
        return self.plain.checksum()


def sampled_pairs(
    plain: TokenBatches[PairBatch],
    source: SegmentationSampler | None,
    target: SegmentationSampler | None,
    max_length: int,
) -> TokenBatches[PairBatch] | SampledBatches[PairBatch]:
    """Batches of pairs with sampled segmentations, of at most `max_length` tokens without marks; a
    side without a sampler stays plain.

    source, target: samplers of segmentations; None for plain segmentation.
    """
    if source is None and target is None:
        return plain
    tried = plain.assemble(tried_items(len(plain.widths[0])))
    widths = (
        sampled_widths(plain.widths[0], tried.source, source, 1, max_length),
        sampled_widths(plain.widths[1], tried.target, target, 2, max_length),
    )

    def redraw(batch: PairBatch, seed: int) -> PairBatch:
        share = plain.batch_tokens // len(batch.rows)
        sources = resegmented(batch.source, source, (), min(share, max_length + 1), seed)
        targets = resegmented(batch.target, target, (BOS,), min(share, max_length + 2), ~seed)
        count = int(targets.real.sum()) - len(batch.rows)
        return PairBatch(sources, targets, batch.rows, count)

    return SampledBatches(plain.with_widths(widths), redraw)


def tried_items(n: int) -> NDArray[np.int64]:
    """Indices of some of n items, spread evenly."""
    return np.unique(np.linspace(0, n - 1, min(n, TRIED_ITEMS)).astype(np.int64))


def sampled_widths(
    widths: Ints, tried: Padded, sampler: SegmentationSampler | None, marks: int, max_length: int
) -> Ints:
    """(n,) positions to plan for, from the widths of the plain rows, of which `tried` are some, for
    sampled rows of at most `max_length` tokens without marks."""
    if sampler is None:
        return widths
    lengths = widths.astype(np.int64) - marks
    room = sampler.room(lengths, _sampling_rows(tried))
    return np.maximum(np.minimum(room, max_length), lengths) + marks


def resegmented(
    plain: Padded,
    sampler: SegmentationSampler | None,
    before: tuple[int, ...],
    share: int,
    seed: int,
) -> Padded:
    """Rows (b, t) of ids, marks `before` and EOS after, resegmented if within `share` positions.

    plain: (b, t) rows of ids.  sampler: of segmentations; None leaves the rows.  seed: equal seeds
    give equal rows.
    """
    if sampler is None:
        return plain
    plain_rows = [row[len(before) : -1] for row in _sampling_rows(plain)]
    longest = share - len(before) - 1
    rows = [
        new if len(new) <= longest else old
        for new, old in zip(sampler.draw(plain_rows, seed), plain_rows, strict=True)
    ]
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    ids = np.fromiter(itertools.chain.from_iterable(rows), np.int64, int(lengths.sum()))
    return pad_rows(ids, np.cumsum(lengths) - lengths, lengths, before)


def _sampling_rows(padded: Padded) -> list[list[int]]:
    lengths = padded.lengths.tolist()
    return [row[:n] for row, n in zip(padded.values.tolist(), lengths, strict=True)]
