"""Batches of items of similar length, bounded by tokens, in a resumable order, and packed into
rows of one shape for a GPU.

All sequences of a side stand side by side in one row of a fixed number of positions.  The rest of
the row belongs to sequences of padding, none of which is longer than the longest of the data, so
that every position has finite values.

A batch is as wide as its longest row on each side, and each side is bounded in positions.  Pairs
are therefore first sorted into strips by their wider side, which decides how many fit, and within a
strip by the ratio of the two sides, so that both sides of a batch are of about equal length.  With
P batches' worth of pairs, strips of about sqrt(P) / 4 batches balance the padding left by either
sort.  Ties, the edges of strips and batches, and the order of batches are random in each epoch.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.data.encoded import EncodedPairs, MixedPairs, spans_of
from transduce.data.per_machine import once_per_machine
from transduce.errors import DataError
from transduce.sequence import Borders, Padded, moved
from transduce.text.tokenizer import BOS, EOS, PAD

MULTIPLE = 64
"""Positions of a row are a multiple of this, as matrix products on a GPU prefer."""


class Packed(NamedTuple):
    """A batch in rows of one shape.

    sides: packed rows (1, n, …).  parts: other tensors, each of the same shape in every batch.
    """

    sides: tuple[Padded, ...]
    parts: tuple[Tensor, ...]
    target_tokens: int

    def to(self, device: torch.device | str) -> Packed:
        """The same on another device."""
        sides = tuple(side.to(device) for side in self.sides)
        return Packed(sides, tuple(moved(x, device) for x in self.parts), self.target_tokens)


class OneShape:
    """Packs batches of one or more sides, sequence i of each belonging together.

    The shape grows where a batch does not fit, and stays.
    """

    def __init__(self, positions: Sequence[int], longest: Sequence[int], sequences: int) -> None:
        """positions: of the row of each side.  longest: positions of the longest sequence of each
        side.  sequences: most in a batch."""
        self.longest = [max(1, n) for n in longest]
        self.positions = [_multiple(max(n)) for n in zip(positions, self.longest, strict=True)]
        self.sequences = sequences

    def pack(self, *sides: Padded) -> list[Padded]:
        """Rows (b, t, …) of each side, the first of the shape, as one row (1, n, …), on the CPU."""
        lengths = [_lengths(side) for side in sides]
        for i, of_side in enumerate(lengths):
            self.longest[i] = max(self.longest[i], int(of_side.max()))
            self.positions[i] = _multiple(max(self.positions[i], int(of_side.sum())))
        self.sequences = max(self.sequences, *map(len, lengths))
        shapes = list(zip(self.positions, self.longest, strict=True))
        room = self.sequences + max(-(-n // most) for n, most in shapes)
        packed = zip(sides, lengths, shapes, strict=False)
        return [_row(side, of_side, *shape, room) for side, of_side, shape in packed]


def beside(ids: Padded, labels: Tensor) -> Padded:
    """Ids (b, t) or (b, t, k) with a label (b, t) each, the last of (b, t, 1 + k)."""
    return ids.with_values(torch.cat([ids.values.view(*labels.shape, -1), labels[..., None]], -1))


def parted(row: Padded) -> tuple[Padded, Tensor]:
    """Ids and labels that were packed `beside` each other."""
    ids, labels = row.values[..., :-1], row.values[..., -1]
    return row.with_values(ids.squeeze(-1).contiguous()), labels.contiguous()


def filled(x: Tensor, n: int, filling: float = 0) -> Tensor:
    """(b, …) -> (n, …).

    x: (b, …).  n: rows of the result.  filling: value of the rows that are added.
    """
    return torch.cat([x, x.new_full((n - len(x), *x.shape[1:]), filling)])


def of_each(row: Padded, labels: Tensor, filling: int = -1) -> Tensor:
    """Labels (b, …) of the sequences of a packed row, filled for those of padding.

    labels: (b, …).  filling: value for sequences of padding.
    """
    assert row.borders is not None
    return filled(labels, len(row.borders.starts) - 1, filling)


def _multiple(n: int) -> int:
    return n + -n % MULTIPLE


def _lengths(side: Padded) -> Tensor:
    """(n,) positions of each sequence, row by row."""
    if side.packed is None:
        return side.lengths
    numbers = side.packed.flatten()[side.real.flatten()]
    lengths: Tensor = torch.unique_consecutive(numbers, return_counts=True)[1]
    return lengths


def _row(side: Padded, lengths: Tensor, positions: int, longest: int, room: int) -> Padded:
    """One row of `positions`, of at most `room` sequences."""
    n = int(lengths.sum())
    values = side.values.new_zeros(positions, *side.values.shape[2:])
    values[:n] = side.values.flatten(0, 1)[side.real.flatten()]
    rest = torch.arange(0, positions - n + longest, longest).clamp(max=positions - n).diff()
    counts = torch.cat([lengths, rest, rest.new_zeros(room - len(lengths) - len(rest))])
    starts = torch.zeros(room + 1, dtype=torch.int32)
    starts[1:] = counts.cumsum(0)
    real = torch.arange(positions) < n
    packed = torch.arange(room).repeat_interleave(counts)
    borders = Borders(starts, longest)
    return Padded(values[None], real[None], "right", packed[None], borders)


Ints = NDArray[np.integer[Any]]

# Below this many batches, a batch cut short to move the others' boundaries costs too much.
MIN_TO_SHIFT = 8


class PairBatch(NamedTuple):
    """Source and target token ids of some pairs.

    source:        (b, s) ids + EOS, padded on the right.
    target:        (b, t) BOS + ids + EOS, padded on the right.
    rows:          (b,) int64, indices of the pairs in the data.
    target_tokens: number of tokens to predict: ids and EOS of every row.
    """

    source: Padded
    target: Padded
    rows: NDArray[np.int64]
    target_tokens: int

    def to(self, device: torch.device | str) -> PairBatch:
        """The same batch on another device."""
        return self._replace(source=self.source.to(device), target=self.target.to(device))

    def shifted(self) -> ShiftedPairs:
        """All but the last token of each target, to predict all but the first."""
        inputs, labels = shifted(self.target)
        return ShiftedPairs(self.source, inputs, labels, self.target_tokens)

    def halves(self) -> tuple[PairBatch, PairBatch] | None:
        """Both halves of the batch by rows; None for a single row."""
        return in_halves(len(self.rows), self._part)

    def _part(self, rows: slice) -> PairBatch:
        target = self.target.select(rows)
        count = int(target.real.sum()) - len(target.real)
        return PairBatch(self.source.select(rows), target, self.rows[rows], count)


class ShiftedPairs(NamedTuple):
    """Sources, target tokens to read, and target tokens to predict.

    source:        (b, s) ids + EOS.
    inputs:        (b, t) BOS + ids.
    labels:        (b, t) ids + EOS, where `inputs` is real.
    target_tokens: number of tokens to predict.
    """

    source: Padded
    inputs: Padded
    labels: Tensor
    target_tokens: int

    def to(self, device: torch.device | str) -> ShiftedPairs:
        """The same pairs on another device."""
        source, inputs = self.source.to(device), self.inputs.to(device)
        return ShiftedPairs(source, inputs, moved(self.labels, device), self.target_tokens)

    def packed(self, shape: OneShape) -> ShiftedPairs:
        """The same pairs in rows of one shape."""
        source, target = shape.pack(self.source, beside(self.inputs, self.labels))
        return ShiftedPairs(source, *parted(target), self.target_tokens)


def shifted(target: Padded) -> tuple[Padded, Tensor]:
    """Ids (b, t + 1) as inputs (b, t) and the id that follows each, (b, t).

    The EOS of a shorter row predicts nothing, so for the model it is padding too.
    """
    labels, real = target.values[:, 1:], target.real[:, 1:]
    return Padded(target.values[:, :-1], real, target.padding), labels


@dataclass(frozen=True)
class DataState:
    """Position of a run in the data: `position` batches into an epoch, both from 0."""

    epoch: int = 0
    position: int = 0


@dataclass(frozen=True)
class RankDataState(DataState):
    """The same for rank `rank` of `world` ranks, which take batches in turn."""

    rank: int = 0
    world: int = 1


class _Plan(NamedTuple):
    """Items of each batch: batch i is order[starts[i]:ends[i]]."""

    order: Ints
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self, i: int) -> NDArray[np.int64]:
        return self.order[self.starts[i] : self.ends[i]].astype(np.int64)


B = TypeVar("B")


def in_halves(n_rows: int, part: Callable[[slice], B]) -> tuple[B, B] | None:
    """Both halves of an object with rows, made by `part`; None for a single row."""
    middle = n_rows // 2
    return (part(slice(middle)), part(slice(middle, n_rows))) if middle else None


@dataclass(frozen=True)
class RowBatch:
    """Base of batches of items.

    rows: (b,) numbers of the items in their data.
    """

    rows: NDArray[np.int64]

    @property
    def target_tokens(self) -> int:
        """Number of predictions: by default that of the items."""
        return len(self.rows)

    def halves(self) -> tuple[Self, Self] | None:
        """The first and the other half of the rows, of each field alike; None for a single row."""

        def half(rows: slice) -> Self:  # type: ignore[type-var]
            parts: Any = {
                name: part.select(rows) if isinstance(part, Padded) else part[rows]
                for name, part in vars(self).items()
            }
            return replace(self, **parts)

        return in_halves(len(self.rows), half)


class Batches(Protocol):
    """Training batches that can be resumed at any position."""

    def iterate(self, state: DataState) -> Iterator[tuple[Any, DataState]]:
        """Yield batches endlessly from `state`, each with the state after it."""

    def checksum(self) -> str:
        """Checksum of the number of items and their lengths."""


class TokenBatches(Generic[B]):
    """All items, or a selection, once per epoch, in batches of at most `batch_tokens` positions.

    The bound applies to each side.  A longer item makes a batch of its own.  The batches of an
    epoch depend only on `seed` and the epoch's number.
    """

    def __init__(
        self,
        widths: tuple[Ints, Ints],
        assemble: Callable[[NDArray[np.int64]], B],
        batch_tokens: int,
        seed: int,
        chosen: Callable[[int, int], Ints] | None = None,
        selection: object = None,
    ) -> None:
        """widths: (n,) positions of each item's two sides; the same array twice for one side.

        assemble: makes a batch from item indices.  chosen: maps epoch and seed to the items of an
        epoch; by default all items once.  selection: identifies `chosen`.
        """
        assert batch_tokens >= 1, batch_tokens
        assert seed >= 0, seed
        self.widths = widths
        self.assemble = assemble
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.chosen = chosen
        self.selection = selection
        self._plan = functools.lru_cache(maxsize=1)(self._plan_of)

    def batches_in(self, epoch: int) -> int:
        """Number of batches in an epoch."""
        return len(self._plan(epoch))

    def iterate(self, state: DataState | None = None) -> Iterator[tuple[B, DataState]]:
        """Yield batches endlessly from a state on, by default the first, each with the state after
        it."""
        return resumable(self.batches_in, self._batch, state)

    def checksum(self) -> str:
        """Checksum of the number of items and their lengths."""
        return self._checksum

    @functools.cached_property
    def _checksum(self) -> str:
        return batches_checksum(*self.widths)

    def one_shape(self, has_targets: bool = False) -> OneShape:
        """Shape of a batch in rows, with room for those of the first epoch and a few more.

        has_targets: the last position of the second side is not read.
        """
        plan = self._plan(0)
        widths = [self.widths[0], self.widths[1] - has_targets]
        positions = []
        for width in widths:
            filled = np.concatenate([[0], np.cumsum(width[plan.order], dtype=np.int64)])
            most = int((filled[plan.ends] - filled[plan.starts]).max())
            positions.append(max(most, min(most + most // 16, self.batch_tokens)))
        sequences = int((plan.ends - plan.starts).max())
        return OneShape(positions, [int(width.max()) for width in widths], sequences)

    def with_widths(self, widths: tuple[Ints, Ints]) -> TokenBatches[B]:
        """The same items, batched as if they had other widths."""
        chosen = self.chosen, self.selection
        return TokenBatches(widths, self.assemble, self.batch_tokens, self.seed, *chosen)

    def in_order(self, batch_tokens: int | None = None) -> Iterator[B]:
        """All items once, shortest first, in a fixed order.  batch_tokens: another bound."""
        plan = _plan_batches(self.widths, batch_tokens or self.batch_tokens, None)
        for i in range(len(plan)):
            yield self.assemble(plan.rows(i))

    def _batch(self, epoch: int, i: int) -> B:
        return self.assemble(self._plan(epoch).rows(i))

    def _plan_of(self, epoch: int) -> _Plan:
        """The plan of an epoch, one for all ranks of a machine."""

        def key() -> object:
            return self.checksum(), self.selection, self.batch_tokens, self.seed, epoch

        return _Plan(*once_per_machine(key, lambda: self._drawn(epoch)))

    def _drawn(self, epoch: int) -> _Plan:
        rng = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        if self.chosen is None:
            return _plan_batches(self.widths, self.batch_tokens, rng)
        items = self.chosen(epoch, self.seed)
        source, target = self.widths
        plan = _plan_batches((source[items], target[items]), self.batch_tokens, rng)
        return _Plan(items[plan.order], plan.starts, plan.ends)


AT_A_TIME = 2**20
"""Numbers that are converted together."""


def batches_checksum(*numbers: Ints) -> str:
    """Checksum of numbers in their order, independent of their dtype."""
    digest = hashlib.sha256()
    for part in numbers:
        for first in range(0, len(part), AT_A_TIME):
            some = part[first : first + AT_A_TIME]
            digest.update(np.ascontiguousarray(some, dtype=np.int64).data)
    return digest.hexdigest()[:16]


def resumable(
    batches_in: Callable[[int], int],
    batch: Callable[[int, int], B],
    state: DataState | None = None,
) -> Iterator[tuple[B, DataState]]:
    """Yield batches endlessly, each with the state after it.

    batches_in: number of batches in an epoch.  batch: makes batch i of an epoch.  Raises DataError
    if the state does not fit the data.
    """
    epoch, position = (state.epoch, state.position) if state else (0, 0)
    rank, world = (state.rank, state.world) if isinstance(state, RankDataState) else (0, 1)
    passed = 0
    if position > batches_in(epoch):
        raise DataError(
            f"cannot resume at batch {position} of epoch {epoch}, which has only "
            f"{batches_in(epoch)} batches; restore the original data and batch_tokens"
        )
    while True:
        count = batches_in(epoch)
        for i in range(position, count):
            if passed % world == rank:
                after = DataState(epoch + 1, 0) if i + 1 == count else DataState(epoch, i + 1)
                yield batch(epoch, i), after
            passed += 1
        epoch, position = epoch + 1, 0


def for_rank(
    batches: Callable[[DataState | None], Iterator[tuple[B, DataState]]], state: DataState | None
) -> Iterator[tuple[B, DataState]]:
    """This reader's share of all batches from a state on, which must be made to be counted."""
    if not isinstance(state, RankDataState):
        return batches(state)
    every = batches(DataState(state.epoch, state.position))
    return itertools.islice(every, state.rank, None, state.world)


def pair_batches(
    data: EncodedPairs | MixedPairs, batch_tokens: int, seed: int, source_end: bool = True
) -> TokenBatches[PairBatch]:
    """Batches of pairs, each target between BOS and EOS, each source before EOS if `source_end`.

    data: encoded pairs.  batch_tokens: positions of a batch, source or target, padding included.
    seed: of the order.
    """
    parts = data.parts if isinstance(data, MixedPairs) else [data]
    source, target = once_per_machine(
        lambda: [str(part.directory) for part in parts],
        lambda: (data.source_lengths + 1, data.target_lengths + 2),
    )
    assemble = functools.partial(_assemble, data, source_end)
    chosen = (data.epoch, data.weights) if isinstance(data, MixedPairs) else (None, None)
    return TokenBatches((source, target), assemble, batch_tokens, seed, *chosen)


def _plan_batches(
    widths: tuple[Ints, Ints], batch_tokens: int, rng: np.random.Generator | None
) -> _Plan:
    """Split all items into batches; without rng, in a fixed order."""
    source, target = widths
    wider = np.maximum(source, target)
    n_batches = int(wider.sum(dtype=np.int64)) / batch_tokens
    shift = rng.random(2) if rng is not None else np.zeros(2)
    strip_positions = np.sqrt(n_batches) / 4 * batch_tokens
    strip = _strips(wider, strip_positions, shift[0] * strip_positions)

    # Zigzag from strip to strip, so that a batch across a border has like pairs on either side.
    ratio = np.log(source / target, dtype=np.float32)
    ratio[strip % 2 == 1] *= -1
    rank = np.round((ratio - ratio.min()) * 1000)
    n = len(wider)
    order: Ints = np.arange(n, dtype=np.int32 if n < 2**31 else np.int64)
    if rng is not None:
        rng.shuffle(order)
    order = _stable_sort(order, rank)
    order = _stable_sort(order, strip)

    first = batch_tokens
    if n_batches >= MIN_TO_SHIFT:
        first -= int(shift[1] * batch_tokens)
    edges = _cut(wider[order], batch_tokens, first)
    sequence = np.arange(len(edges) - 1)
    if rng is not None:
        sequence = rng.permutation(sequence)
    return _Plan(order, edges[:-1][sequence], edges[1:][sequence])


def _strips(wider: Ints, positions: float, begun: float) -> Ints:
    """(n,) strip of each pair: widths that fill `positions`, `begun` of them filled already."""
    count = np.bincount(wider)
    filled = count * np.arange(len(count))
    before = np.cumsum(filled) - filled
    strip_of_width = ((before + begun) / positions).astype(np.int64)
    # Without gaps in the numbers, for the zigzag goes by odd and even.
    strip_of_width[count > 0] = np.unique(strip_of_width[count > 0], return_inverse=True)[1]
    numbers: Ints = strip_of_width.astype(np.int32)[wider]
    return numbers


def _stable_sort(order: Ints, key: NDArray[Any]) -> Ints:
    """`order` sorted by `key[order]`; numpy sorts 16-bit keys by radix, many times faster."""
    small = np.minimum(key, 2**16 - 1).astype(np.uint16)
    ranks: Ints = np.argsort(small[order], kind="stable")
    return order[ranks]


def _cut(wider: Ints, limit: int, first: int) -> Ints:
    """Edges (n_batches + 1,) of batches filled greedily with pairs of these widths (n,)."""
    edges = [0]
    start, n = 0, len(wider)
    bound = first
    while start < n:
        # The first pair's width bounds how many can fit, hence how far to look.
        stop = min(n, start + max(1, bound // int(wider[start])))
        widest = np.maximum.accumulate(wider[start:stop], dtype=np.int64)
        fits = np.count_nonzero(widest * np.arange(1, stop - start + 1) <= bound)
        start += max(1, int(fits))
        edges.append(start)
        bound = limit
    return np.array(edges, dtype=np.int64)


def _assemble(
    data: EncodedPairs | MixedPairs, source_end: bool, rows: NDArray[np.int64]
) -> PairBatch:
    if isinstance(data, MixedPairs):
        source = pad_rows(*data.gather("source", rows), ())
        tokens, starts, lengths = data.gather("target", rows)
    else:
        source = pad_rows(data.source_tokens, *spans_of(data.source_offsets, rows), ())
        tokens, (starts, lengths) = data.target_tokens, spans_of(data.target_offsets, rows)
    target = pad_rows(tokens, starts, lengths, (BOS,))
    source = source if source_end else _without_end(source)
    return PairBatch(source, target, rows, int(lengths.sum()) + len(rows))


def _without_end(rows: Padded) -> Padded:
    """The same rows without EOS; an empty text keeps it."""
    lengths = (rows.real.sum(1) - 1).clamp(min=1)
    real = torch.arange(int(lengths.max())) < lengths[:, None]
    values = torch.where(real, rows.values[:, : real.shape[1]], PAD)
    return Padded(values, real, rows.padding)


def pad_rows(tokens: NDArray[Any], starts: Ints, lengths: Ints, before: tuple[int, ...]) -> Padded:
    """Rows of `lengths` (b,) from `starts` (b,), with marks before and EOS after each."""
    begin = len(before)
    width = int(lengths.max()) + begin + 1
    values = np.full((len(lengths), width), PAD, dtype=np.int64)
    values[:, :begin] = before
    columns = np.arange(width - begin - 1)
    inside = columns < lengths[:, None]
    # Basic slicing keeps a view of the ids' place, so that the mask writes into `values`.
    values[:, begin:-1][inside] = tokens[(starts[:, None] + columns)[inside]]
    values[np.arange(len(lengths)), begin + lengths] = EOS
    real = np.arange(width) < (lengths + begin + 1)[:, None]
    padding: Literal["none", "right"] = "none" if (lengths == lengths[0]).all() else "right"
    return Padded(torch.from_numpy(values), torch.from_numpy(real), padding)
