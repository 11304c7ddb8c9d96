"""Documents side by side in rows of equal width, with almost no padding.

Documents longer than a row are cut into pieces; all but the first and last piece fill a row, and in
training the cuts differ between epochs.  Shorter documents stay whole and share rows: the longest
are placed first, each into the row with the least room left (best fit, decreasing).  Every token
but BOS is predicted exactly once per epoch.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.batches import (
    DataState,
    OneShape,
    batches_checksum,
    beside,
    for_rank,
    in_halves,
    parted,
    resumable,
)
from transduce.data.documents import EncodedDocuments
from transduce.data.per_machine import once_per_machine
from transduce.sequence import Padded
from transduce.text.tokenizer import PAD

Ints = NDArray[np.int64]


class PackedBatch(NamedTuple):
    """Rows of documents, or pieces of them.

    inputs:        (b, t) input ids; `packed` only if a row has several pieces.
    labels:        (b, t) the id that follows each.
    counted:       (b, t) bool, True for predictions that count.
    documents:     numbers of the documents that these are pieces of.
    target_tokens: number of predictions that count.
    """

    inputs: Padded
    labels: Tensor
    counted: Tensor
    documents: Ints
    target_tokens: int

    def to(self, device: torch.device | str) -> PackedBatch:
        """The same batch on another device."""
        return self._replace(
            inputs=self.inputs.to(device),
            labels=self.labels.to(device),
            counted=self.counted.to(device),
        )

    def packed(self, shape: OneShape) -> PackedBatch:
        """The same pieces in one row of one shape."""
        labels = self.labels.masked_fill(~self.counted, -1)
        (row,) = shape.pack(beside(self.inputs, labels))
        inputs, labels = parted(row)
        counted = row.real & (labels >= 0)
        return PackedBatch(inputs, labels, counted, self.documents[:0], self.target_tokens)

    def halves(self) -> tuple[PackedBatch, PackedBatch] | None:
        """Both halves of the batch by rows; None for a single row."""
        return in_halves(len(self.counted), self._part)

    def _part(self, rows: slice) -> PackedBatch:
        counted = self.counted[rows]
        inputs, labels = self.inputs.select(rows), self.labels[rows]
        return PackedBatch(inputs, labels, counted, self.documents, int(counted.sum()))


class DocumentSpans(NamedTuple):
    """Parts of documents: start of their ids, number of ids, first predictions not counted,
    document (n,)."""

    start: Ints
    length: Ints
    skip: Ints
    document: Ints

    def take(self, index: Ints | slice) -> DocumentSpans:
        """Select some of them."""
        return DocumentSpans(*(part[index] for part in self))


class _PackingPlan(NamedTuple):
    """Pieces of each row: row i is pieces edges[i] to edges[i + 1]."""

    pieces: DocumentSpans
    edges: Ints

    @property
    def n_rows(self) -> int:
        return len(self.edges) - 1


class PackedBatches:
    """All documents, once per epoch, in batches of a fixed number of rows, by `seed` and epoch
    alone.

    Ids from `vocabulary` on have no loss, and stand for themselves less `vocabulary`; batches
    without a loss are left out.
    """

    def __init__(
        self,
        data: EncodedDocuments,
        block: int,
        batch_tokens: int,
        seed: int,
        vocabulary: int | None = None,
    ) -> None:
        """block: positions of a row.  batch_tokens: positions of a batch, at least a row.
        vocabulary: ids with a loss; None for all.
        """
        assert block >= 1 and batch_tokens >= block, (block, batch_tokens)
        assert seed >= 0, seed
        self.data = data
        self.block = block
        self.rows = batch_tokens // block
        self.seed = seed
        self.vocabulary = vocabulary
        self._plan = functools.lru_cache(maxsize=1)(self._plan_of)

    def batches_in(self, epoch: int) -> int:
        """Number of batches in an epoch."""
        return -(-self._plan(epoch).n_rows // self.rows)

    def iterate(self, state: DataState | None = None) -> Iterator[tuple[PackedBatch, DataState]]:
        """Yield batches endlessly, each with the state after it, as `resumable`."""
        if self.vocabulary is None:
            return self._every(state)
        return for_rank(self._counted, state)

    def _counted(self, state: DataState | None) -> Iterator[tuple[PackedBatch, DataState]]:
        return ((batch, after) for batch, after in self._every(state) if batch.target_tokens)

    def _every(self, state: DataState | None) -> Iterator[tuple[PackedBatch, DataState]]:
        return resumable(self.batches_in, lambda epoch, i: self._batch(self._plan(epoch), i), state)

    def in_order(self, stride: int = 0) -> Iterator[PackedBatch]:
        """All documents once, in a fixed order, as for validation; every prediction counts once.

        stride: with 1 to block - 1, a window moves by this many positions, and only the last
        `stride` predictions of each after the first count: slower, but every prediction has
        context.
        """
        lengths = np.diff(self.data.offsets) - 1
        shift = np.zeros_like(lengths)
        pieces = cut(self.data.offsets, self.block, stride or self.block, shift)
        plan = _lay(pieces, self.block, None)
        batches = (self._batch(plan, i) for i in range(-(-plan.n_rows // self.rows)))
        return (batch for batch in batches if batch.target_tokens)

    def beginning(self, document: int, length: int) -> list[int]:
        """The first input ids of a document, at most `length`, as a model reads them."""
        first, end = self.data.offsets[document : document + 2].tolist()
        ids = self.data.tokens[first : min(first + length, end - 1)].tolist()
        return [i % self.vocabulary for i in ids] if self.vocabulary else ids

    def one_shape(self) -> OneShape:
        """Shape of a batch in one row, with room for as many pieces as are likely."""
        lengths = np.sort(np.minimum(np.diff(self.data.offsets) - 1, self.block))
        positions = self.rows * self.block
        whole = int(np.searchsorted(np.cumsum(lengths), positions, side="right"))
        return OneShape([positions], [self.block], whole + self.rows)  # each row may end one's rest

    def checksum(self) -> str:
        """Checksum of the number of documents and their lengths."""
        return batches_checksum(self.data.offsets)

    def _plan_of(self, epoch: int) -> _PackingPlan:
        """The plan of an epoch, one for all ranks of a machine."""

        def key() -> object:
            return self.checksum(), self.block, self.rows, self.seed, epoch

        *spans, edges = once_per_machine(key, lambda: self._drawn(epoch))
        return _PackingPlan(DocumentSpans(*spans), edges)

    def _drawn(self, epoch: int) -> list[Ints]:
        rng = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        shift = rng.integers(0, self.block, len(self.data))
        pieces = cut(self.data.offsets, self.block, self.block, shift)
        plan = _lay(pieces, self.block, rng)
        return [*plan.pieces, plan.edges]

    def _batch(self, plan: _PackingPlan, i: int) -> PackedBatch:
        edges = plan.edges[i * self.rows : (i + 1) * self.rows + 1]
        pieces = plan.pieces.take(slice(edges[0], edges[-1]))
        return assemble(self.data.tokens, pieces, edges - edges[0], self.vocabulary)


def cut(offsets: Ints, block: int, stride: int, shift: Ints) -> DocumentSpans:
    """Pieces of documents; document i has ids offsets[i] to offsets[i + 1], of `offsets` (n + 1,).

    stride: distance between the starts of pieces; block, unless they overlap.
    shift: (n,) in [0, block), by how much the first piece of a longer document is shorter.
    """
    total = np.diff(offsets) - 1  # predictions: all but BOS
    shift = np.where(total > block, shift, 0)
    rest = np.maximum(total - (block - shift), 0)
    count = 1 + -(-rest // stride)
    document = np.repeat(np.arange(len(total)), count)
    number = np.arange(len(document)) - np.repeat(np.cumsum(count) - count, count)
    begin = number * stride - shift[document]
    end = np.minimum(begin + block, total[document])
    begin = np.maximum(begin, 0)
    skip = np.where(number > 0, block - stride, 0)
    return DocumentSpans(offsets[:-1][document] + begin, end - begin, skip, document)


def pack(lengths: Ints, block: int) -> Ints:
    """(n,) row of each piece, given falling lengths (n,), at most `block`."""
    assert len(lengths) == 0 or lengths[0] <= block
    n_full = int(np.searchsorted(-lengths, -block, side="right"))
    rows = np.arange(len(lengths))
    n_rows = n_full
    room: dict[int, list[int]] = {}  # free positions -> rows that have so many
    sizes: list[int] = []  # the keys of it, in order
    for i, length in enumerate(lengths[n_full:].tolist(), n_full):
        at = bisect.bisect_left(sizes, length)
        if at == len(sizes):
            row, left = n_rows, block - length
            n_rows += 1
        else:
            size = sizes[at]
            row, left = room[size].pop(), size - length
            if not room[size]:
                del room[size], sizes[at]
        rows[i] = row
        if left:
            if left not in room:
                room[left] = []
                bisect.insort(sizes, left)
            room[left].append(row)
    return rows


def _lay(pieces: DocumentSpans, block: int, rng: np.random.Generator | None) -> _PackingPlan:
    """Place pieces in rows, at random, or without rng in a fixed order."""
    n = len(pieces.length)
    order = rng.permutation(n) if rng is not None else np.arange(n)
    order = order[np.argsort(-pieces.length[order], kind="stable")]
    rows = pack(pieces.length[order], block)
    n_rows = int(rows.max()) + 1
    if rng is not None:
        rows = rng.permutation(n_rows)[rows]
    by_row = np.argsort(rows, kind="stable")
    edges = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])
    return _PackingPlan(pieces.take(order[by_row]), edges)


def assemble(
    tokens: NDArray[Any], pieces: DocumentSpans, edges: Ints, vocabulary: int | None = None
) -> PackedBatch:
    """Make a batch: row i has pieces edges[i] to edges[i + 1].

    tokens: ids of all documents.  vocabulary: as in `PackedBatches`.
    """
    per_row = np.diff(edges)
    row = np.repeat(np.arange(len(per_row)), per_row)
    filled = np.add.reduceat(pieces.length, edges[:-1])
    width = int(filled.max())
    ends = np.cumsum(pieces.length)
    at = ends - pieces.length - np.repeat(ends[edges[1:] - 1] - filled, per_row)
    inputs = np.full((len(per_row), width), PAD, dtype=np.int64)
    labels = np.full_like(inputs, PAD)
    counted = np.zeros(inputs.shape, dtype=bool)
    packed = np.full_like(inputs, -1)
    facts = zip(row, at, pieces.start, pieces.length, pieces.skip, strict=True)
    for number, (r, a, start, length, skip) in enumerate(facts):
        inputs[r, a : a + length] = tokens[start : start + length]
        labels[r, a : a + length] = tokens[start + 1 : start + length + 1]
        counted[r, a + skip : a + length] = True
        packed[r, a : a + length] = number
    if vocabulary is not None:
        counted &= labels < vocabulary
        inputs, labels = inputs % vocabulary, labels % vocabulary
    padding: Literal["none", "right"] = "none" if (filled == width).all() else "right"
    real = torch.from_numpy(np.arange(width) < filled[:, None])
    several = torch.from_numpy(packed) if len(row) > len(per_row) else None
    return PackedBatch(
        Padded(torch.from_numpy(inputs), real, padding, several),
        torch.from_numpy(labels),
        torch.from_numpy(counted),
        np.unique(pieces.document),
        int(counted.sum()),
    )
