"""Pairs as token ids on disk: encoded once, memory-mapped ever after.

    DIRECTORY/
        source.tokens, source.offsets    as `data.rows` lays them out
        target.tokens, target.offsets
        manifest.json

The directory is complete or absent: it is written aside and then renamed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.data.filters import FilterConfig, FilterReport, Pair, PairFilter
from transduce.data.rows import (
    RowWriter,
    Side,
    map_rows,
    read_manifest,
    write_manifest,
    written_aside,
)
from transduce.errors import DataError

VERSION = 1
CHUNK_PAIRS = 10_000
FILES = ("source.tokens", "source.offsets", "target.tokens", "target.offsets")


class NoPairsError(DataError):
    """Filtering left no pair."""


class EncodedPairs:
    """Pairs of token ids in memory-mapped files; no marks of begin or end are stored.

    source_lengths, target_lengths: (n,) int32, tokens of each pair.
    report: what was read, kept and left out when the pairs were encoded.
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
        """The pairs, or None when they are absent, incomplete, or of another fingerprint."""
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
) -> EncodedPairs:
    """Encode and filter pairs into `directory`, replacing what is there.

    fingerprint: stands for all that decides the result (inputs, tokenizers, filters).
    progress: called now and then with the number of pairs read so far.  Memory holds one chunk
    of pairs and the hashes of those seen.  Raises NoPairsError when no pair is kept, DataError
    when the directory cannot be written.
    """
    sieve = PairFilter(filters)
    with written_aside(directory, FILES) as aside:
        with (
            RowWriter(aside, "source", source) as sources,
            RowWriter(aside, "target", target) as targets,
        ):
            for chunk in _chunks(pairs):
                _encode_chunk(chunk, sieve, sources, targets)
                if progress is not None:
                    progress(sieve.report.read)
        if not sieve.report.kept:
            raise NoPairsError(f"no pair is left after filtering: {sieve.report}")
        facts = {
            "pairs": sieve.report.kept,
            "report": dataclasses.asdict(sieve.report),
            "dtype": {"source": source.dtype, "target": target.dtype},
        }
        write_manifest(aside, fingerprint, VERSION, FILES, facts)
    encoded = EncodedPairs.open(directory, fingerprint)
    assert encoded is not None, directory
    return encoded


def cached_pairs(
    pairs: Callable[[], Iterable[Pair]],
    source: Side,
    target: Side,
    filters: FilterConfig,
    directory: Path,
    fingerprint: str,
    progress: Callable[[int], None] | None = None,
) -> EncodedPairs:
    """Pairs encoded before, or else encoded now: `pairs` is called only if it must be.

    fingerprint: stands for the inputs and both tokenizers; the filters and vocabulary sizes are
    added to it here.  Raises what `encode_pairs` raises.
    """
    sizes = [source.vocabulary_size, target.vocabulary_size]
    facts = [fingerprint, dataclasses.asdict(filters), sizes]
    whole = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    encoded = EncodedPairs.open(directory, whole)
    if encoded is not None:
        return encoded
    return encode_pairs(pairs(), source, target, filters, directory, whole, progress)


def _encode_chunk(
    chunk: list[Pair], sieve: PairFilter, sources: RowWriter, targets: RowWriter
) -> None:
    chunk = sieve.by_text(chunk)
    if not chunk:
        return
    source_rows = sources.side.encode([pair[0] for pair in chunk])
    target_rows = targets.side.encode([pair[1] for pair in chunk])
    assert len(source_rows) == len(target_rows) == len(chunk)
    source_lengths = np.fromiter(map(len, source_rows), np.int64, len(chunk))
    target_lengths = np.fromiter(map(len, target_rows), np.int64, len(chunk))
    kept = sieve.by_length(source_lengths, target_lengths)
    sources.append(list(itertools.compress(source_rows, kept)), source_lengths[kept])
    targets.append(list(itertools.compress(target_rows, kept)), target_lengths[kept])


def _chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    iterator = iter(pairs)
    while chunk := list(itertools.islice(iterator, CHUNK_PAIRS)):
        yield chunk
