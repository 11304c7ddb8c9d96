"""Sections that name files or data sets, in the formats that every kind of data is read from.

All readers of sections stream: `root` is the directory that relative paths start from, and
DataError is raised, while reading, for input that does not match its section.
"""

import contextlib
import functools
import glob
import hashlib
import itertools
import json
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BeforeValidator

from transduce.data.stores import above_magic, cached_files
from transduce.data.tables import (
    HUB,
    Column,
    Delimiter,
    TableRecord,
    check_columns,
    csv_rows,
    hub_records,
    json_records,
    parquet_records,
    tsv_rows,
)
from transduce.errors import DataError, reading
from transduce.settings.paths import expanded_path
from transduce.settings.sections import section, to_dict

BLOCKS = 16
BLOCK_BYTES = 2**12
"""Bytes hashed in each of `BLOCKS` blocks, to distinguish files of the same size and dates."""


def _some(paths: Any) -> Any:
    if isinstance(paths, list | tuple) and not paths:
        raise ValueError("name at least one file")
    return paths


def _address(address: str | Path) -> str | Path:
    return address if URL in str(address) else Path(address)


FilePath = Annotated[Path, BeforeValidator(expanded_path)]
"""A file or directory of data; may hold `~` and `$VARIABLE`.  Relative, it is below `data.root`."""
Address = Annotated[str | Path, BeforeValidator(expanded_path), AfterValidator(_address)]
"""The same, or a URL, as text."""
HubPath = Annotated[str, BeforeValidator(expanded_path)]
"""The same, or `hf://owner/name`."""
Addresses = Annotated[Address | tuple[Address, ...], BeforeValidator(_some)]
"""One address, or several: files, patterns such as `part-*.gz`, directories."""
Rows = Iterator[tuple[str, ...]]
URL = "://"
chained = itertools.chain.from_iterable


class Source(Protocol):
    """A section of data.  root: the directory that relative paths start from."""

    def files(self, root: Path) -> list[Path]:
        """Files of the data; none for a data set on the Hub."""


@section
class Files:
    """Base of sections of one file or several, read one after the other."""

    path: Addresses
    """The file, or files in this order: a list, a pattern such as `part-*.gz`, a directory with all
    below it; of a disk, or of a store by its URL (extra `scale`)."""

    def location(self, root: Path) -> str:
        """The files, for messages."""
        return ", ".join(str(root / address) for address in _each(self.path))

    def files(self, root: Path) -> list[Path]:
        """All files.  Raises DataError where a pattern or directory has none."""
        return files_at(self.path, root)


def _each(addresses: Addresses) -> list[str]:
    return [str(each) for each in (addresses if isinstance(addresses, tuple) else (addresses,))]


def files_at(addresses: Addresses, root: Path) -> list[Path]:
    """The files of addresses; those of a pattern or directory by name, each once, without hidden
    files and those that begin with `_`.  Files of a store are copied to a cache, once.

    Raises DataError for an unreadable store or directory, and where a pattern or directory has no
    files.
    """
    return [
        file
        for address in _each(addresses)
        for file in _listed((address, root), functools.partial(_files_at, address, root))
    ]


_listings: ContextVar[dict[object, list[Path]] | None] = ContextVar("listings", default=None)


@contextlib.contextmanager
def listed_once() -> Iterator[None]:
    """Within the context each address is listed once, so that all of its readers have the same
    files, and a store or a directory of many is asked once."""
    token = _listings.set({})
    try:
        yield
    finally:
        _listings.reset(token)


def _listed(key: object, listing: Callable[[], list[Path]]) -> list[Path]:
    """The listing of a key, made now unless it was made within `listed_once`."""
    listings = _listings.get()
    if listings is None:
        return listing()
    if key not in listings:
        listings[key] = listing()
    return listings[key]


def _files_at(address: str, root: Path) -> list[Path]:
    if URL in address:
        return cached_files(address)
    path = root / address
    files: Iterable[Path]
    with reading(path):
        if path.is_dir():
            below, files = path, _walked(path)
        elif glob.has_magic(address) and not path.exists():
            below = root / above_magic(address)
            names = glob.glob(address, root_dir=root, recursive=True)  # noqa: PTH207 - root is literal
            files = (root / name for name in names)
        else:
            return [path]
        listed = sorted(file for file in files if not file.is_dir() and _is_data(file, below))
    if not listed:
        raise DataError(f"{path}: no files found")
    unique = {os.path.realpath(file): file for file in reversed(listed)}
    return sorted(unique.values())


def _walked(directory: Path) -> Iterator[Path]:
    """Files below a directory, and below those that links in it lead to.  Raises OSError."""

    def fail(error: OSError) -> None:
        raise error

    walked = set()
    for folder, folders, names in os.walk(directory, onerror=fail, followlinks=True):
        real = os.path.realpath(folder)
        if real in walked:
            folders.clear()
            continue
        walked.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        yield from (Path(folder, name) for name in names)


def _is_data(file: Path, below: Path) -> bool:
    parts = file.relative_to(below).parts if file.is_relative_to(below) else (file.name,)
    return not any(part.startswith((".", "_")) for part in parts)


@section
class TsvFile(Files):
    """A tab-separated file, plain or compressed."""

    kind: Literal["tsv"] = "tsv"

    def rows(self, root: Path, columns: Sequence[Column]) -> Rows:
        """Stream these columns, as a tuple of texts per row.  Raises DataError."""
        return chained(tsv_rows(file, columns) for file in self.files(root))


@section
class CsvFile(Files):
    """A CSV file, plain or compressed, quoted as in RFC 4180 and spreadsheets."""

    kind: Literal["csv"] = "csv"
    delimiter: Delimiter = ","
    """Separator between columns: a comma, `;`, or a tab, for TSV with quoting."""
    header: bool = True
    """Read column names from the first line."""

    def columns(self) -> Sequence[Column]:
        """All columns that may be read."""
        return ()

    def __post_init__(self) -> None:
        check_columns(self.header, self.columns())

    def rows(self, root: Path, columns: Sequence[Column]) -> Rows:
        """Stream these columns, as a tuple of texts per row.  Raises DataError."""
        return chained(
            csv_rows(file, columns, self.delimiter, self.header) for file in self.files(root)
        )


class Table(ABC):
    """Rows with named columns."""

    @abstractmethod
    def records(self, root: Path, columns: Sequence[str]) -> Iterator[TableRecord]:
        """Stream all rows, with at least these columns.  Raises DataError."""

    def rows(self, root: Path, columns: Sequence[str]) -> Rows:
        """Stream these columns, as a tuple of texts per row.  Raises DataError."""
        return (record.texts(columns) for record in self.records(root, columns))


@section
class JsonLinesFile(Files, Table):
    """A file with one JSON object per line, plain or compressed."""

    kind: Literal["jsonl"] = "jsonl"

    def records(self, root: Path, columns: Sequence[str]) -> Iterator[TableRecord]:
        """Stream all objects."""
        return chained(json_records(file) for file in self.files(root))


@section
class ParquetFile(Files, Table):
    """A Parquet file (needs the extra `parquet`)."""

    kind: Literal["parquet"] = "parquet"

    def records(self, root: Path, columns: Sequence[str]) -> Iterator[TableRecord]:
        """Stream all rows, with these columns alone."""
        return chained(parquet_records(file, columns) for file in self.files(root))


@section
class HubData(Table):
    """A data set for the `datasets` library (needs the extra `hub`)."""

    kind: Literal["hub"] = "hub"
    path: HubPath
    """`hf://owner/name`, a directory of data files, or one written by `save_to_disk`."""
    split: str = "train"
    """The split."""
    name: str | None = None
    """Configuration of the data set, if it has several."""

    def location(self, root: Path) -> str | Path:
        """Address on the Hub, or the directory."""
        return self.path if self.path.startswith(HUB) else root / self.path

    def files(self, root: Path) -> list[Path]:
        """All files of a directory, but hidden files; none on the Hub."""
        if self.path.startswith(HUB):
            return []
        directory = root / self.path

        def visible() -> list[Path]:
            paths = (p for p in directory.rglob("*") if not p.name.startswith("."))
            return sorted(p for p in paths if p.is_file())

        return [*_listed(directory, visible)]

    def records(self, root: Path, columns: Sequence[str]) -> Iterator[TableRecord]:
        """Stream all rows, with at least these columns."""
        return hub_records(self.location(root), columns, self.split, self.name)


def fingerprint(config: Source, root: Path) -> str:
    """Hash of the settings and inputs, as in `stamp`; a data set on the Hub counts by name and
    split."""
    return stamp(config, config.files(root))


def stamp(config: Any, paths: Iterable[Path]) -> str:
    """Hash of settings, and of the place, size, modification and change times and some blocks of
    files.

    Raises DataError if a file is missing.
    """
    files = []
    for path in paths:
        with reading(path):
            status = path.stat()
            dates = status.st_mtime_ns, status.st_ctime_ns
            if stat.S_ISFIFO(status.st_mode):
                raise DataError(
                    f"{path} is a pipe, and training reads its data several times; write them to a "
                    "file first"
                )
            blocks = _blocks(path, status.st_size) if stat.S_ISREG(status.st_mode) else ""
        files.append([str(path.resolve()), status.st_size, *dates, blocks])
    facts = json.dumps([to_dict(config), files], sort_keys=True)
    return hashlib.sha256(facts.encode("utf-8", "surrogateescape")).hexdigest()


def _blocks(path: Path, size: int) -> str:
    """Hash of blocks from the first to the last byte; of a small file, all of it."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        for block in range(BLOCKS):
            file.seek(max(size - BLOCK_BYTES, 0) * block // (BLOCKS - 1))
            digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()


def stamp_of_many(config: Any, stamps: Iterable[bytes], location: Path) -> str:
    """Hash of settings and of stamps of many files.  Raises DataError for a missing file or
    `location`."""
    facts = hashlib.sha256(json.dumps(to_dict(config), sort_keys=True).encode())
    try:
        for part in stamps:
            facts.update(part)
    except OSError as error:
        name = error.filename or location
        raise DataError(f"{name} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # the character NUL in a name
        raise DataError(f"{location} contains an invalid file name: {error}") from None
    return facts.hexdigest()


def file_stamp(file: str) -> bytes:
    """Place, size and dates of a file, to be hashed.  Raises OSError, ValueError."""
    status = os.stat(file)  # noqa: PTH116 - a Path for each of a million files is slow
    numbers = status.st_size, status.st_mtime_ns, status.st_ctime_ns
    return os.fsencode(file) + f"\0{numbers}\0".encode()
