"""Pairs as token ids on disk, filtered, encoded once and memory-mapped; corpora of them combined
by weight; links between their tokens.

    DIRECTORY/
        source.tokens, source.offsets    see `data.ragged_rows`
        target.tokens, target.offsets
        manifest.json

The directory is complete or absent: it is written aside and then renamed.  After a killed process
another resumes its files.

Adapting a general model to a domain needs both corpora at once, since training on the domain alone
forgets the rest (Chu et al. 2017); synthetic pairs are balanced against real pairs in the same way
(Edunov et al. 2018).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.pairs import FilterConfig
from transduce.data.ragged_rows import (
    NOTHING,
    SEEN,
    ResumableDirectory,
    RowWriter,
    Side,
    Written,
    map_rows,
    opened,
    read_manifest,
    resume_or_create,
    to_disk,
    write_manifest,
)
from transduce.data.workers import in_workers
from transduce.errors import DataError
from transduce.support.work import chunks

Pair = tuple[str, str]


@dataclass
class FilterReport:
    """Number of pairs read, kept, and left out by reason (the first that applied)."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    too_long: int = 0
    ratio: int = 0
    duplicate: int = 0

    def __str__(self) -> str:
        return (
            f"{self.read} pairs read, {self.kept} kept, {self.empty} empty, "
            f"{self.too_long} too long, {self.ratio} of uneven length, "
            f"{self.duplicate} duplicates"
        )


class PairFilter:
    """Filter pairs by text, then by token counts; counts go to `report`."""

    def __init__(
        self,
        config: FilterConfig,
        report: FilterReport | None = None,
        hashes: NDArray[np.uint64] | None = None,
    ) -> None:
        """report, hashes: of an earlier filter to continue from."""
        self.config = config
        self.report = report or FilterReport()
        self._seen = _SeenHashes(hashes)

    def by_text(self, read: int, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """(n,) True for new pairs, by hashes (n,) of those with text on both sides among `read`
        pairs."""
        self.report.read += read
        self.report.empty += read - len(hashes)
        if not self.config.drop_duplicates:
            return np.ones(len(hashes), dtype=bool)
        fresh = self._seen.add(hashes)
        self.report.duplicate += len(hashes) - int(fresh.sum())
        return fresh

    def by_length(
        self, source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """(n,) True for pairs to keep, from the token counts (n,) of their two sides."""
        shorter = np.minimum(source_lengths, target_lengths)
        longer = np.maximum(source_lengths, target_lengths)
        empty = shorter == 0
        too_long = ~empty & (longer > self.config.max_length)
        accepted: NDArray[np.bool_] = ~empty & ~too_long
        if self.config.max_ratio:
            uneven = accepted & (longer > self.config.max_ratio * shorter)
            self.report.ratio += int(uneven.sum())
            accepted &= ~uneven
        self.report.empty += int(empty.sum())
        self.report.too_long += int(too_long.sum())
        self.report.kept += int(accepted.sum())
        return accepted


class _SeenHashes:
    """Set of 64-bit hashes, as sorted arrays merged when of similar size.

    A Python set would need ten times the memory: gigabytes for tens of millions of pairs.
    """

    def __init__(self, hashes: NDArray[np.uint64] | None = None) -> None:
        self._levels = [] if hashes is None or not len(hashes) else [np.sort(hashes)]

    def add(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """(n,) True for new hashes; repetitions within the array are not new."""
        unique, first = np.unique(hashes, return_index=True)
        new = np.ones(len(unique), dtype=bool)
        for level in self._levels:
            position = np.minimum(np.searchsorted(level, unique), len(level) - 1)
            new &= level[position] != unique
        added = unique[new]
        if len(added):
            while self._levels and len(self._levels[-1]) <= 2 * len(added):
                added = np.concatenate([self._levels.pop(), added])
            added.sort()
            self._levels.append(added)
        fresh = np.zeros(len(hashes), dtype=bool)
        fresh[first[new]] = True
        return fresh


def has_text(pair: Pair) -> bool:
    """True if neither side is blank."""
    return bool(pair[0].strip() and pair[1].strip())


def hash_of(pair: Pair) -> int:
    """64-bit hash of a pair; collisions are very unlikely."""
    source, target = pair[0].encode(), pair[1].encode()
    # The length keeps ("ab", "c") apart from ("a", "bc").
    digest = hashlib.blake2b(b"%d:" % len(source) + source + target, digest_size=8)
    return int.from_bytes(digest.digest(), "little")


VERSION = 1
CHUNK_PAIRS = 10_000
CHUNKS_KEPT = 20
"""Chunks between two resume points, and the most lost if the process is killed."""
FILES = ("source.tokens", "source.offsets", "target.tokens", "target.offsets")


class NoPairsError(DataError):
    """Filtering left no pairs."""


class EncodedPairs:
    """Pairs of token ids in memory-mapped files, without BOS and EOS.

    report: counts of pairs read, kept and left out during encoding.
    """

    def __init__(self, directory: Path, manifest: dict[str, Any]) -> None:
        self.directory = directory
        self.report = FilterReport(**manifest["report"])
        types = manifest["dtype"]
        self.source_tokens, self.source_offsets = map_rows(directory, "source", types["source"])
        self.target_tokens, self.target_offsets = map_rows(directory, "target", types["target"])

    @staticmethod
    def open(directory: Path, fingerprint: str) -> EncodedPairs | None:
        """Open the pairs; None if absent, incomplete, or with another fingerprint."""
        manifest = read_manifest(directory, fingerprint, VERSION, FILES)
        try:
            return None if manifest is None else EncodedPairs(directory, manifest)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def __len__(self) -> int:
        return len(self.source_offsets) - 1

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """(n,) source tokens of each pair, made anew."""
        return np.diff(self.source_offsets).astype(np.int32)

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """(n,) target tokens of each pair, made anew."""
        return np.diff(self.target_offsets).astype(np.int32)

    def source(self, i: int) -> NDArray[Any]:
        """(s,) source ids of pair i."""
        return np.asarray(self.source_tokens[self.source_offsets[i] : self.source_offsets[i + 1]])

    def target(self, i: int) -> NDArray[Any]:
        """(t,) target ids of pair i."""
        return np.asarray(self.target_tokens[self.target_offsets[i] : self.target_offsets[i + 1]])


def encode_pairs(
    pairs: Iterable[Pair],
    source: Side,
    target: Side,
    filters: FilterConfig,
    directory: Path,
    fingerprint: str,
    progress: Callable[[int], None] | None = None,
    processes: int = 1,
) -> EncodedPairs:
    """Encode and filter pairs into `directory`, replacing its content.

    source, target: tokenizer and limits of each side.  fingerprint: identifies the inputs,
    tokenizers and filters.  progress: called now and then with the number of pairs read.
    processes: they change no byte of the result, even after a killed process was resumed.  Memory
    holds some chunks of pairs and the hashes of pairs seen.  Raises NoPairsError if no pair is
    kept, DataError if the directory cannot be written.
    """
    with resume_or_create(directory, FILES, fingerprint, VERSION) as unfinished:
        if unfinished is not None:
            work = functools.partial(_encode_chunk, source=source, target=target, filters=filters)
            growing = _Growing(unfinished, source, target, filters)
            _write(growing, pairs, work, progress, processes)
            report = growing.sieve.report
            facts = {
                "pairs": report.kept,
                "report": dataclasses.asdict(report),
                "dtype": {"source": source.dtype, "target": target.dtype},
            }
            write_manifest(unfinished.path, fingerprint, VERSION, FILES, facts)
    encoded = EncodedPairs.open(directory, fingerprint)
    assert encoded is not None, directory
    return encoded


def _write(
    growing: _Growing,
    pairs: Iterable[Pair],
    work: Callable[[list[Pair]], _Chunk],
    progress: Callable[[int], None] | None,
    processes: int,
) -> None:
    with growing:
        report = growing.sieve.report
        rest = itertools.islice(pairs, report.read, None)
        with contextlib.closing(in_workers(work, chunks(rest, CHUNK_PAIRS), processes)) as made:
            for number, chunk in enumerate(made, 1):
                growing.add(chunk)
                if number % CHUNKS_KEPT == 0:
                    growing.keep()
                if progress is not None:
                    progress(report.read)
    if not report.kept:
        raise NoPairsError(f"no pairs left after filtering: {report}")


def cached_pairs(
    pairs: Callable[[], Iterable[Pair]],
    source: Side,
    target: Side,
    filters: FilterConfig,
    directory: Path,
    fingerprint: str,
    progress: Callable[[int], None] | None = None,
    processes: int = 1,
) -> EncodedPairs:
    """Open encoded pairs, or encode them now as `encode_pairs`; filters and vocabulary sizes are
    added to the fingerprint, which identifies the inputs and both tokenizers.

    source, target: tokenizer and limits of each side.  directory: of the encoded pairs.  progress
    and processes are as in `encode_pairs`.
    """
    sizes = [source.vocabulary_size, target.vocabulary_size]
    facts = [fingerprint, dataclasses.asdict(filters), sizes]
    whole = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    encoded = EncodedPairs.open(directory, whole)
    if encoded is not None:
        return encoded
    return encode_pairs(pairs(), source, target, filters, directory, whole, progress, processes)


class _Chunk(NamedTuple):
    """Some encoded pairs.

    read: number of pairs read.  hashes: (n,) of pairs with text on both sides, if duplicates are
    dropped.  source, target: ids of these n, and their lengths (n,).
    """

    read: int
    hashes: NDArray[np.uint64]
    source: NDArray[Any]
    target: NDArray[Any]
    source_lengths: NDArray[np.int64]
    target_lengths: NDArray[np.int64]


def _encode_chunk(pairs: list[Pair], source: Side, target: Side, filters: FilterConfig) -> _Chunk:
    whole = [pair for pair in pairs if has_text(pair)]
    hashes = np.zeros(len(whole), np.uint64)
    if filters.drop_duplicates:
        hashes = np.fromiter(map(hash_of, whole), np.uint64, len(whole))
    source_rows = source.encode([pair[0] for pair in whole])
    target_rows = target.encode([pair[1] for pair in whole])
    assert len(source_rows) == len(target_rows) == len(whole)
    source_lengths = np.fromiter(map(len, source_rows), np.int64, len(whole))
    target_lengths = np.fromiter(map(len, target_rows), np.int64, len(whole))
    source_ids = source.ids_of(source_rows, source_lengths)
    target_ids = target.ids_of(target_rows, target_lengths)
    return _Chunk(len(pairs), hashes, source_ids, target_ids, source_lengths, target_lengths)


class _Growing:
    """Files of encoded pairs during writing."""

    def __init__(
        self, unfinished: ResumableDirectory, source: Side, target: Side, filters: FilterConfig
    ) -> None:
        done, self.unfinished = unfinished.progress, unfinished
        report, known = FilterReport(), np.zeros(0, np.uint64)
        written = dict.fromkeys(("source", "target"), NOTHING)
        hashes = unfinished.path / SEEN
        if done:
            report = FilterReport(**done["report"])
            written = {name: Written(*done[name]) for name in written}
            known = np.fromfile(hashes, "<u8", done["seen"])
        self.sieve = PairFilter(filters, report, known)
        with contextlib.ExitStack() as stack:
            sides = {"source": source, "target": target}
            self._source, self._target = (
                stack.enter_context(RowWriter(unfinished.path, name, side.dtype, written[name]))
                for name, side in sides.items()
            )
            self._seen = stack.enter_context(opened(hashes, 8 * len(known)))
            self._files = stack.pop_all()

    def __enter__(self) -> _Growing:
        return self

    def __exit__(self, *error: Any) -> None:
        self._files.__exit__(*error)

    def add(self, chunk: _Chunk) -> None:
        accepted = self.sieve.by_text(chunk.read, chunk.hashes)
        if self.sieve.config.drop_duplicates:
            self._seen.write(chunk.hashes[accepted].astype("<u8").tobytes())
        lengths = chunk.source_lengths, chunk.target_lengths
        accepted[accepted] = self.sieve.by_length(lengths[0][accepted], lengths[1][accepted])
        self._source.append(chunk.source[np.repeat(accepted, lengths[0])], lengths[0][accepted])
        self._target.append(chunk.target[np.repeat(accepted, lengths[1])], lengths[1][accepted])

    def keep(self) -> None:
        self._source.to_disk()
        self._target.to_disk()
        to_disk(self._seen)
        facts = {
            "report": dataclasses.asdict(self.sieve.report),
            "source": self._source.written,
            "target": self._target.written,
            "seen": self._seen.tell() // 8,
        }
        self.unfinished.keep(facts)


Ints = NDArray[np.integer[Any]]


class MixedPairs:
    """Encoded pairs of several corpora, numbered from the first to the last."""

    def __init__(self, parts: Sequence[EncodedPairs], weights: Sequence[float]) -> None:
        """weights: repetitions of each corpus per epoch.  Raises DataError if an epoch could be
        empty."""
        assert len(parts) == len(weights) > 0
        self.parts = parts
        self.weights = weights
        sizes = list(map(len, parts))
        if all(_exactly(w) * size < 1 for w, size in zip(weights, sizes, strict=True)):
            raise DataError(
                f"weights {list(weights)} for corpora of {sizes} pairs give an empty epoch; "
                "raise data.train_weight, or a weight in data.mix"
            )
        self._firsts = np.concatenate([[0], np.cumsum(sizes)])

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """(n,) source tokens of each pair, made anew."""
        return np.concatenate([part.source_lengths for part in self.parts])

    @property
    def target_lengths(self) -> NDArray[np.int32]:
        """(n,) target tokens of each pair, made anew."""
        return np.concatenate([part.target_lengths for part in self.parts])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def epoch(self, number: int, seed: int) -> NDArray[np.int64]:
        """Indices of the pairs of an epoch, with repetitions.

        Each corpus is passed in a random order after the other, and an epoch continues where the
        last stopped, so over several epochs all pairs are seen equally often.
        """
        drawn = []
        for corpus, (part, weight) in enumerate(zip(self.parts, self.weights, strict=True)):
            size = len(part)
            share = _exactly(weight) * size
            begin, end = (math.floor(turn * share) for turn in (number, number + 1))
            for turn in range(begin // size, -(-end // size)):
                low, high = max(begin - turn * size, 0), min(end - turn * size, size)
                rows = np.arange(size)
                if high - low < size:  # of a whole turn the order does not matter
                    sequence = np.random.SeedSequence([seed], spawn_key=(corpus, turn))
                    rows = np.random.default_rng(sequence).permutation(size)[low:high]
                drawn.append(rows + self._firsts[corpus])
        return np.concatenate(drawn)

    def gather(
        self, side: Literal["source", "target"], rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], Ints, Ints]:
        """Ids of some pairs on a side, with starts and lengths (b,) of their rows."""
        corpus = np.searchsorted(self._firsts, rows, side="right") - 1
        begins, lengths = np.empty_like(rows), np.empty_like(rows)
        sides = [
            (part.source_tokens, part.source_offsets)
            if side == "source"
            else (part.target_tokens, part.target_offsets)
            for part in self.parts
        ]
        for number, (_, offsets) in enumerate(sides):
            mine = corpus == number
            begins[mine], lengths[mine] = spans_of(offsets, rows[mine] - self._firsts[number])
        ends = np.cumsum(lengths)
        tokens = np.empty(ends[-1], dtype=np.int64)
        starts = ends - lengths
        for number, (ids, _) in enumerate(sides):
            mine = corpus == number
            tokens[_spans(starts[mine], lengths[mine])] = ids[_spans(begins[mine], lengths[mine])]
        return tokens, starts, lengths


def spans_of(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Starts and lengths (b,) of some rows of `offsets` (n + 1,)."""
    starts = offsets[rows]
    return starts, offsets[rows + 1] - starts


def _exactly(weight: float) -> Fraction:
    """Recover 1 / 3 from 0.333…: in floats 29 · 0.01 · 100 is less than 29, and an epoch empty."""
    return Fraction(weight).limit_denominator(10**9)


def _spans(starts: Ints, lengths: Ints) -> Ints:
    """(sum of lengths,) the numbers start, start + 1, … of some rows, row after row."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    within: Ints = np.arange(total) - np.repeat(ends - lengths, lengths)
    return within + np.repeat(starts, lengths)


def as_mixed(pairs: EncodedPairs | MixedPairs) -> MixedPairs:
    """A single corpus as a mixture; a mixture unchanged."""
    return pairs if isinstance(pairs, MixedPairs) else MixedPairs([pairs], [1.0])


LAST = 2**15 - 1
"""Last token position that a link can have."""


class BatchLinks(NamedTuple):
    """Links of the rows of a batch, (l,) each; a weight is 1 over the links of its target token."""

    rows: Ints
    targets: Ints
    sources: Ints
    shares: NDArray[np.float32]


class LinkRows(NamedTuple):
    """Links of n pairs; pair i has links offsets[i] to offsets[i + 1], token positions (l,)
    int16."""

    offsets: Ints
    sources: Ints
    targets: Ints

    @staticmethod
    def of(pairs: Iterable[Iterable[tuple[int, int]]]) -> LinkRows:
        """Build from the (source, target) links of each pair, without links beyond `LAST`."""
        counts, places = [0], []
        for links in pairs:
            storable = sorted(link for link in links if max(link) <= LAST)
            counts.append(len(storable))
            places.append(np.array(storable, np.int16).reshape(-1, 2))
        every = np.concatenate(places) if places else np.empty((0, 2), np.int16)
        return LinkRows(np.cumsum(counts), every[:, 0].copy(), every[:, 1].copy())

    def __repr__(self) -> str:
        return f"LinkRows of {len(self.offsets) - 1} pairs"

    def batch(self, rows: Ints) -> BatchLinks:
        """Links of some pairs; pairs beyond the last have none."""
        inside = np.minimum(rows, len(self.offsets) - 2)
        sizes = np.where(inside == rows, np.diff(self.offsets)[inside], 0)
        row = np.repeat(np.arange(len(rows)), sizes)
        within = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        at = self.offsets[inside][row] + within
        targets = self.targets[at].astype(np.int64)
        token = row * (LAST + 1) + targets
        _, group, count = np.unique(token, return_inverse=True, return_counts=True)
        shares = (1 / count[group]).astype(np.float32)
        return BatchLinks(row, targets, self.sources[at].astype(np.int64), shares)
