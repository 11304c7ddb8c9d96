"""Pairs as token ids on disk: encoded once, memory-mapped ever after.

    DIRECTORY/
        source.tokens    all source ids in a row (uint16 if the vocabulary fits, else int32)
        source.offsets   int64: pair i is ids offsets[i] to offsets[i + 1]
        target.tokens, target.offsets
        manifest.json    fingerprint, counts, types, and the size of every file

The directory is complete or absent: it is written aside and then renamed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from transduce.data.filters import FilterConfig, FilterReport, Pair, PairFilter
from transduce.errors import DataError

Encode = Callable[[Sequence[str]], list[list[int]]]

VERSION = 1
CHUNK_PAIRS = 10_000
MANIFEST = "manifest.json"
FILES = ("source.tokens", "source.offsets", "target.tokens", "target.offsets")
ABANDONED_SECONDS = 24 * 3600


class NoPairsError(DataError):
    """Filtering left no pair."""


@dataclasses.dataclass(frozen=True)
class Side:
    """How one side of the pairs becomes token ids.

    encode: texts to lists of ids, without marks of begin or end; ids are in
    [0, vocabulary_size).
    """

    encode: Encode
    vocabulary_size: int

    @property
    def dtype(self) -> str:
        """The type that ids are stored as, as numpy spells it, independent of the machine."""
        return "<u2" if self.vocabulary_size <= 2**16 else "<i4"


class EncodedPairs:
    """Pairs of token ids in memory-mapped files; no marks of begin or end are stored.

    source_lengths, target_lengths: (n,) int32, tokens of each pair.
    report: what was read, kept and left out when the pairs were encoded.
    """

    def __init__(self, directory: Path, manifest: dict[str, Any]) -> None:
        self.directory = directory
        self.report = FilterReport(**manifest["report"])
        types = manifest["dtype"]
        self.source_tokens, self.source_offsets = _map(directory, "source", types["source"])
        self.target_tokens, self.target_offsets = _map(directory, "target", types["target"])
        self.source_lengths = np.diff(self.source_offsets).astype(np.int32)
        self.target_lengths = np.diff(self.target_offsets).astype(np.int32)

    @staticmethod
    def open(directory: Path, fingerprint: str) -> EncodedPairs | None:
        """The pairs, or None when they are absent, incomplete, or of another fingerprint."""
        try:
            manifest = json.loads((directory / MANIFEST).read_bytes())
            if manifest["version"] != VERSION or manifest["fingerprint"] != fingerprint:
                return None
            sizes = manifest["sizes"]
            if any((directory / name).stat().st_size != sizes[name] for name in FILES):
                return None
            return EncodedPairs(directory, manifest)
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
    with _written_aside(directory) as aside:
        with (
            _SideWriter(aside, "source", source) as sources,
            _SideWriter(aside, "target", target) as targets,
        ):
            for chunk in _chunks(pairs):
                _encode_chunk(chunk, sieve, sources, targets)
                if progress is not None:
                    progress(sieve.report.read)
        if not sieve.report.kept:
            raise NoPairsError(f"no pair is left after filtering: {sieve.report}")
        manifest = {
            "version": VERSION,
            "fingerprint": fingerprint,
            "pairs": sieve.report.kept,
            "report": dataclasses.asdict(sieve.report),
            "dtype": {"source": source.dtype, "target": target.dtype},
            "sizes": {path.name: path.stat().st_size for path in map(aside.joinpath, FILES)},
        }
        with (aside / MANIFEST).open("wb") as file:
            file.write(json.dumps(manifest, indent=2).encode() + b"\n")
            _to_disk(file)
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


class _SideWriter:
    """Appends ragged rows of ids to `NAME.tokens` and `NAME.offsets`."""

    def __init__(self, directory: Path, name: str, side: Side) -> None:
        self.side = side
        self._tokens = (directory / f"{name}.tokens").open("wb")
        self._offsets = (directory / f"{name}.offsets").open("wb")
        self._end = 0
        self._offsets.write(np.zeros(1, "<i8").tobytes())

    def __enter__(self) -> _SideWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._tokens, self._offsets:
            if error is None:
                _to_disk(self._tokens)
                _to_disk(self._offsets)

    def append(self, rows: list[list[int]], lengths: NDArray[np.int64]) -> None:
        """rows: lists of ids, of `lengths` (n,)."""
        total = int(lengths.sum())
        ids = np.fromiter(itertools.chain.from_iterable(rows), np.int64, total)
        assert not total or 0 <= ids.min() <= ids.max() < self.side.vocabulary_size, "id too large"
        ends = self._end + np.cumsum(lengths)
        self._end += total
        self._tokens.write(ids.astype(self.side.dtype).tobytes())
        self._offsets.write(ends.astype("<i8").tobytes())


def _encode_chunk(
    chunk: list[Pair], sieve: PairFilter, sources: _SideWriter, targets: _SideWriter
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


def _map(directory: Path, name: str, dtype: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    tokens = np.memmap(directory / f"{name}.tokens", dtype=dtype, mode="r")
    offsets = np.memmap(directory / f"{name}.offsets", dtype="<i8", mode="r")
    # Plain arrays over the same mapping: indexing them costs less.
    return np.asarray(tokens), np.asarray(offsets)


@contextlib.contextmanager
def _written_aside(directory: Path) -> Iterator[Path]:
    """A fresh directory that takes the place of `directory` if, and only if, all goes well."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(directory)
        _remove_abandoned(directory)
        prefix = f".{directory.name}."
        aside = Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=directory.parent))
        try:
            yield aside
            _publish(aside, directory)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise DataError(f"{directory} cannot be written: {error.strerror or error}") from error


def _publish(aside: Path, directory: Path) -> None:
    """Rename into place; what stood there goes first, for a rename replaces no full directory."""
    old = aside.with_name(f"{aside.name}.old.partial")
    while True:
        with contextlib.suppress(FileNotFoundError):
            directory.rename(old)
        shutil.rmtree(old, ignore_errors=True)
        try:
            aside.rename(directory)
        except OSError as error:
            # Another process may have put its own there in between; ours is as good.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return


def _refuse_foreign(directory: Path) -> None:
    """Whatever is not ours must not be replaced."""
    if directory.exists():
        foreign = {path.name for path in directory.iterdir()} - {*FILES, MANIFEST}
        if foreign:
            raise DataError(
                f"{directory} holds other things, such as {min(foreign)!r}; "
                "give the encoded pairs a directory of their own"
            )


def _remove_abandoned(directory: Path) -> None:
    """Clear what killed processes left, but not what another may still be writing."""
    for path in directory.parent.glob(f".{directory.name}.*.partial"):
        with contextlib.suppress(OSError):
            newest = max(p.stat().st_mtime for p in [path, *path.iterdir()])
            if newest < time.time() - ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
