"""Pairs as token ids on disk: encoded once, then memory-mapped.

    DIRECTORY/
        source.tokens, source.offsets    see `data.ragged_rows`
        target.tokens, target.offsets
        manifest.json

The directory is complete or absent: it is written aside and then renamed.  After a killed process
another resumes its files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.data.filter_config import FilterConfig
from transduce.data.filters import FilterReport, Pair, PairFilter, has_text, hash_of
from transduce.data.ragged_rows import (
    NOTHING,
    RowWriter,
    Side,
    Written,
    map_rows,
    opened,
    read_manifest,
    to_disk,
    write_manifest,
)
from transduce.data.resumable import SEEN, ResumableDirectory, resume_or_create
from transduce.data.workers import in_workers
from transduce.errors import DataError
from transduce.support.work import chunks

VERSION = 1
CHUNK_PAIRS = 10_000
CHUNKS_KEPT = 20
"""Chunks between two resume points, and the most lost if the process is killed."""
FILES = ("source.tokens", "source.offsets", "target.tokens", "target.offsets")


class NoPairsError(DataError):
    """Filtering left no pairs."""


class EncodedPairs:
    """Pairs of token ids in memory-mapped files, without BOS and EOS.

    source_lengths, target_lengths: (n,) int32, tokens of each pair.
    report: counts of pairs read, kept and left out during encoding.
    """

    def __init__(self, directory: Path, manifest: dict[str, Any]) -> None:
        self.directory = directory
        self.report = FilterReport(**manifest["report"])
        types = manifest["dtype"]
        self.source_tokens, self.source_offsets = map_rows(directory, "source", types["source"])
        self.target_tokens, self.target_offsets = map_rows(directory, "target", types["target"])
        self.source_lengths = np.diff(self.source_offsets).astype(np.int32)
        self.target_lengths = np.diff(self.target_offsets).astype(np.int32)

    @staticmethod
    def open(directory: Path, fingerprint: str) -> EncodedPairs | None:
        """Open the pairs; None if absent, incomplete, or with another fingerprint."""
        manifest = read_manifest(directory, fingerprint, VERSION, FILES)
        try:
            return None if manifest is None else EncodedPairs(directory, manifest)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def __len__(self) -> int:
        return len(self.source_lengths)

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

    fingerprint: identifies the inputs, tokenizers and filters.  progress: called now and then with
    the number of pairs read.  processes: they change no byte of the result, even after a killed
    process was resumed.  Memory holds some chunks of pairs and the hashes of pairs seen.  Raises
    NoPairsError if no pair is kept, DataError if the directory cannot be written.
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
    added to the fingerprint, which identifies the inputs and both tokenizers."""
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
