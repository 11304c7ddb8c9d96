"""Ragged rows of numbers on disk, written over a long time and resumed after a killed process.

NAME.tokens      token ids of all rows, concatenated (uint16 if the vocabulary fits, else int32)
NAME.frames      frames of recordings, likewise (float16)
NAME.offsets     int64: row i is values offsets[i] to offsets[i + 1]
manifest.json    fingerprint, facts about the content, and the size of every file

    .NAME.unfinished/
        the files of NAME, growing
        seen            hashes of items written, for finding duplicates
        progress.json   size of each file safely on disk, renamed into place

NAME appears only once complete.  The holder of its lock writes it; other processes that need it
wait, and take over if the writer dies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError, writing
from transduce.support.files import LockHeldError, awaited_lock, read_json

Encode = Callable[[Sequence[str]], list[list[int]]]

MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class Side:
    """Encoder of texts on a side, to ids in [0, vocabulary_size)."""

    encode: Encode
    vocabulary_size: int

    @property
    def dtype(self) -> str:
        """Storage type of ids as numpy spells it, independent of the machine."""
        return "<u2" if self.vocabulary_size <= 2**16 else "<i4"

    def ids_of(self, rows: Sequence[Sequence[int]], lengths: NDArray[np.int64]) -> NDArray[Any]:
        """Concatenated ids of all rows, of `lengths` (n,), in storage format."""
        total = int(lengths.sum())
        ids = np.fromiter(itertools.chain.from_iterable(rows), np.int64, total)
        assert not total or 0 <= ids.min() <= ids.max() < self.vocabulary_size, "id too large"
        return ids.astype(self.dtype)


class Written(NamedTuple):
    """Amount written by a `RowWriter`."""

    values: int
    rows: int


NOTHING = Written(0, 0)


class RowWriter:
    """Appends ragged rows to `NAME.tokens`, or with another ending, and to `NAME.offsets`."""

    def __init__(
        self,
        directory: Path,
        name: str,
        dtype: str,
        written: Written = NOTHING,
        ending: str = "tokens",
    ) -> None:
        """dtype: of values, as numpy spells it.  written: amount of the existing files to append
        to."""
        item = np.dtype(dtype).itemsize
        self._values = opened(directory / f"{name}.{ending}", written.values * item)
        rows = 8 * (written.rows + 1) if written.rows else 0
        self._offsets = opened(directory / f"{name}.offsets", rows)
        self.written = written
        if not rows:
            self._offsets.write(np.zeros(1, "<i8").tobytes())

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._values, self._offsets:
            if kind is None:
                self.to_disk()

    def append(self, values: NDArray[Any], lengths: NDArray[np.int64]) -> None:
        """values: of all rows, concatenated, in the writer's type, as from `Side.ids_of`."""
        ends = self.written.values + np.cumsum(lengths)
        self.written = Written(self.written.values + len(values), self.written.rows + len(lengths))
        self._values.write(values.tobytes())
        self._offsets.write(ends.astype("<i8").tobytes())

    def to_disk(self) -> None:
        """Flush both files."""
        to_disk(self._values)
        to_disk(self._offsets)


def map_rows(
    directory: Path, name: str, dtype: str, ending: str = "tokens"
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Values of all rows, and (n + 1,) offsets, of the files `NAME.*`.

    directory, name: of the files.  dtype: of the values.  ending: of the file of values.
    """
    values = np.memmap(directory / f"{name}.{ending}", dtype=dtype, mode="r")
    offsets = np.memmap(directory / f"{name}.offsets", dtype="<i8", mode="r")
    # Plain arrays over the same mapping: indexing them costs less.
    return np.asarray(values), np.asarray(offsets)


def write_manifest(
    directory: Path,
    fingerprint: str,
    version: int,
    files: Collection[str],
    facts: Mapping[str, Any],
) -> None:
    """Describe the finished files of a directory.

    fingerprint: identifies the inputs.  version: of the format.  files: names of the finished
    files.  facts: further entries.
    """
    manifest = {
        "version": version,
        "fingerprint": fingerprint,
        **facts,
        "sizes": {name: (directory / name).stat().st_size for name in files},
    }
    with (directory / MANIFEST).open("wb") as file:
        file.write(json.dumps(manifest, indent=2).encode() + b"\n")
        to_disk(file)


def read_manifest(
    directory: Path, fingerprint: str, version: int, files: Collection[str]
) -> dict[str, Any] | None:
    """Facts about the files; None if absent, incomplete, or with another fingerprint.

    directory: of the files.  version: of the format.
    """
    try:
        manifest: dict[str, Any] = read_json(directory / MANIFEST)
        if manifest["version"] != version or manifest["fingerprint"] != fingerprint:
            return None
        sizes = manifest["sizes"]
        if any((directory / name).stat().st_size != sizes[name] for name in files):
            return None
        return manifest
    except (OSError, ValueError, KeyError, TypeError):
        return None


def publish_directory(aside: Path, directory: Path) -> None:
    """Rename into place, after moving away an old directory, which rename cannot replace.

    An equal directory that another process has published meanwhile stays, as it is about to be
    opened.
    """
    with awaited_lock(directory.parent / f".{directory.name}.publishing"):
        made = json.loads((aside / MANIFEST).read_bytes())
        if read_manifest(directory, made["fingerprint"], made["version"], made["sizes"]):
            shutil.rmtree(aside)
            return
        old = aside.with_name(f"{aside.name}.old.partial")
        with contextlib.suppress(FileNotFoundError):
            directory.rename(old)
        shutil.rmtree(old, ignore_errors=True)
        aside.rename(directory)


def refuse_foreign(directory: Path, files: Collection[str]) -> None:
    """Raises DataError if the directory contains files of other origin."""
    if directory.exists():
        foreign = {path.name for path in directory.iterdir()} - {*files, MANIFEST}
        if foreign:
            raise DataError(
                f"{directory} contains other files, such as {min(foreign)!r}; "
                "use a separate directory for encoded data"
            )


def to_disk(file: IO[bytes]) -> None:
    """Flush a file so that it survives a crash or power failure."""
    file.flush()
    os.fsync(file.fileno())


def opened(path: Path, size: int) -> IO[bytes]:
    """Open a file for appending after the first `size` bytes; created if missing."""
    if not size:
        return path.open("wb")
    file = path.open("r+b")
    file.truncate(size)
    file.seek(size)
    return file


logger = logging.getLogger("transduce")

PROGRESS = "progress.json"
SEEN = "seen"
EXTRAS = (PROGRESS, f"{PROGRESS}.tmp", SEEN)
"""Files needed only while unfinished."""
FORGOTTEN_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class ResumableDirectory:
    """A directory being written.  progress: content of the last `keep`; empty for a fresh start."""

    path: Path
    fingerprint: str
    progress: Mapping[str, Any]

    def keep(self, progress: Mapping[str, Any]) -> None:
        """Record a resume point; the files up to it are already on disk."""
        sizes = {file.name: file.stat().st_size for file in self.path.iterdir()}
        facts = {"fingerprint": self.fingerprint, "sizes": sizes, "progress": progress}
        aside = self.path / f"{PROGRESS}.tmp"
        with aside.open("wb") as file:
            file.write(json.dumps(facts).encode())
            to_disk(file)
        aside.replace(self.path / PROGRESS)


@contextlib.contextmanager
def resume_or_create(
    directory: Path, files: Collection[str], fingerprint: str, version: int
) -> Iterator[ResumableDirectory | None]:
    """Yield a directory that replaces `directory` on success and stays aside on failure.

    files: names allowed beside a manifest; a directory with others is not touched.  Only work with
    the same fingerprint is resumed.  Yields None if another process has finished it meanwhile.
    Raises DataError if it cannot be written.
    """
    with writing(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        refuse_foreign(directory, (*files, *EXTRAS))
        _remove_forgotten(directory.parent)
        path = directory.with_name(f".{directory.name}.unfinished")
        with preparation_lock(directory) as waited:
            if waited and read_manifest(directory, fingerprint, version, files):
                yield None
                return
            path.mkdir(exist_ok=True)
            progress = _progress(path, fingerprint)
            if not progress:
                _empty(path)
            try:
                yield ResumableDirectory(path, fingerprint, progress)
                publish_directory(path, directory)
            except BaseException:
                if not _progress(path, fingerprint):
                    shutil.rmtree(path, ignore_errors=True)
                raise
        for extra in EXTRAS:
            (directory / extra).unlink(missing_ok=True)


def _progress(path: Path, fingerprint: str) -> dict[str, Any]:
    """The last resume point; empty if it is of other work, or if files are shorter."""
    try:
        facts = read_json(path / PROGRESS)
        sizes = {name: (path / name).stat().st_size for name in facts["sizes"] if name != PROGRESS}
        whole = all(size >= facts["sizes"][name] for name, size in sizes.items())
        return dict(facts["progress"]) if whole and facts["fingerprint"] == fingerprint else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _empty(path: Path) -> None:
    """Clear the directory, beginning with the file that marks it as resumable."""
    (path / PROGRESS).unlink(missing_ok=True)
    for file in path.iterdir():
        file.unlink()


@contextlib.contextmanager
def preparation_lock(directory: Path) -> Iterator[bool]:
    """Lock a file or directory that is being prepared; True if another process held it first."""

    def waiting() -> None:
        logger.info("waiting for another process that is preparing the same data")

    with awaited_lock(_lock_file(directory.name, directory.parent), waiting) as waited:
        yield waited


def _lock_file(name: str, parent: Path) -> Path:
    return parent / f".{name}.lock"


def _remove_forgotten(parent: Path) -> None:
    for path in parent.glob(".*.unfinished*"):
        with contextlib.suppress(OSError, LockHeldError):
            newest = max(p.stat().st_mtime for p in [path, *path.iterdir()])
            name = path.name.removeprefix(".").partition(".unfinished")[0]
            if newest < time.time() - FORGOTTEN_SECONDS:
                with awaited_lock(_lock_file(name, parent), blocking=False):
                    shutil.rmtree(path, ignore_errors=True)
