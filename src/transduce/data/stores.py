"""Files on a disk or on any store supported by fsspec: S3, Google Cloud Storage, HDFS.

A place is a path or a URL, `data/*.txt` or `s3://bucket/part-*.gz`.  Access is configured as
described by each store's package, with environment variables or files.
"""

import glob
import hashlib
import io
import posixpath
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from transduce.errors import DataError, TransduceError, extra_module, first_line, writing
from transduce.support.files import user_cache
from transduce.support.files import whole_file as whole_local_file

OBJECT_STORES = frozenset(
    ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "tos", "hf", "memory")
)
"""Stores in which a file appears only when fully uploaded, and renaming would copy it."""
STAMPS = ("ETag", "etag", "md5Hash", "checksum", "mtime", "LastModified", "last_modified")
"""Keys of stores for values that change whenever a file is rewritten, the most reliable first."""
ASIDE = ".part"
BLOCK = 2**20


class StoredFile(NamedTuple):
    """One file of a listing."""

    url: str
    name: str
    """Path below the requested directory or pattern."""
    size: int
    stamp: str
    """Value that changes when the file is rewritten."""


def absolute_url(address: str) -> str:
    """An absolute path or URL.  Raises DataError for an unknown store, or without its package."""
    return _url(*_store_of(address))


def files_in(address: str) -> list[StoredFile]:
    """Files matched by a file name, a pattern or a directory, sorted by name, without hidden files
    and those of jobs, which begin with `_`.  Raises DataError if there are none."""
    store, path = _store_of(address)
    with _as_data_error(address):
        if store.isfile(path):
            (file,) = _stored(store, posixpath.dirname(path), {path: store.info(path)}, ())
            return [file]
        if store.isdir(path):
            root, entries = path, store.find(path, detail=True)
        elif glob.has_magic(path):
            root, entries = above_magic(path), store.glob(path, detail=True)
        else:
            raise DataError(f"{address}: no such file")
        files = list(_stored(store, root, entries, (".", "_")))
    if not files:
        raise DataError(f"{address}: no files found")
    return sorted(files, key=lambda file: file.name)


def cached_files(address: str) -> list[Path]:
    """Copies on disk of the files that `files_in` has, made anew if a file has changed; of a disk
    the files."""
    fsspec = extra_module("fsspec", "a file of another store", "scale")
    copies = []
    for file in files_in(address):
        if "://" not in file.url:
            copies.append(Path(file.url))
            continue
        parent = hashlib.sha256(posixpath.dirname(file.url).encode()).hexdigest()[:16]
        options = {
            "cache_storage": str(user_cache("data") / parent),
            "same_names": True,
            "check_files": True,
        }
        with _as_data_error(file.url):
            copies.append(Path(fsspec.open_local(f"filecache::{file.url}", filecache=options)))
    return copies


def names_below(address: str) -> set[str]:
    """Names of the files below a directory, but hidden files; none if it does not exist."""
    store, path = _store_of(address)
    with _as_data_error(address):
        if not store.isdir(path):
            return set()
        entries = store.find(path, detail=True)
        return {file.name for file in _stored(store, path, entries, (".",))}


@contextmanager
def opened_store(url: str) -> Iterator[BinaryIO]:
    """Open a file for reading.  Raises DataError if this fails."""
    store, path = _store_of(url)
    with _as_data_error(url):
        file = store.open(path, "rb")
        if not _is_local(store):
            file = io.BufferedReader(file, BLOCK)  # its own reads megabytes for each line
    with file:
        yield file


@contextmanager
def whole_stored_file(url: str) -> Iterator[BinaryIO]:
    """Yield a file for writing that appears only if the context ends without an error: written
    aside and renamed, or uploaded.  Raises DataError."""
    store, path = _store_of(url)
    with writing(url):
        if _is_local(store):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            with whole_local_file(Path(path), ASIDE) as file:
                yield file
            return
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / "file"
            with copy.open("wb") as file:
                yield file
            with _as_data_error(url):
                _upload(store, copy, path)


def local_path(url: str) -> Path | None:
    """Path of a place on disk; None for other stores."""
    store, path = _store_of(url)
    return Path(path) if _is_local(store) else None


def remove_leftovers(directory: Path) -> None:
    """Delete leftovers of killed writers; only for the holder of the lock."""
    for left in directory.rglob(f".*{ASIDE}"):
        left.unlink(missing_ok=True)


def _url(store: Any, path: str) -> str:
    return path if _is_local(store) else str(store.unstrip_protocol(path))


def _upload(store: Any, file: Path, path: str) -> None:
    protocols = {store.protocol} if isinstance(store.protocol, str) else set(store.protocol)
    store.makedirs(posixpath.dirname(path), exist_ok=True)
    if protocols.isdisjoint(OBJECT_STORES):
        aside = str(Path(path).with_name(f".{Path(path).name}.{uuid.uuid4().hex}{ASIDE}"))
        store.put_file(str(file), aside)
        store.mv(aside, path)
    else:
        store.put_file(str(file), path)


def _stored(
    store: Any, root: str, entries: Mapping[str, Mapping[str, Any]], hidden: tuple[str, ...]
) -> Iterator[StoredFile]:
    """hidden: prefixes of names of files and directories to skip."""
    for path, info in entries.items():
        name = path[len(root) :].lstrip("/") if root else path
        if info["type"] != "file" or any(part.startswith(hidden) for part in name.split("/")):
            continue
        stamp = next((str(info[key]) for key in STAMPS if info.get(key) is not None), "")
        yield StoredFile(_url(store, path), name, int(info["size"] or 0), stamp)


def above_magic(path: str) -> str:
    """The directory of a pattern that has no signs of one."""
    literal: list[str] = []
    for part in path.split("/"):
        if glob.has_magic(part):
            break
        literal.append(part)
    return "/".join(literal)


def _store_of(address: str) -> tuple[Any, str]:
    """fsspec file system, and the path in it."""
    fsspec = extra_module("fsspec.core", "a file of another store", "scale")
    if "::" in address:
        raise DataError(f"{address}: nested URLs are not supported; unpack the file first")
    with _as_data_error(address):
        store, path = fsspec.url_to_fs(address)
    return store, path


def _is_local(store: Any) -> bool:
    protocols = (store.protocol,) if isinstance(store.protocol, str) else store.protocol
    return "file" in protocols


@contextmanager
def _as_data_error(address: str) -> Iterator[None]:
    try:
        yield
    except TransduceError:
        raise
    except FileNotFoundError:
        raise DataError(f"{address}: no such file") from None
    except OSError as error:
        raise DataError(f"{address}: {error.strerror or first_line(error)}") from None
    except Exception as error:
        # The packages of the stores pass on the errors of their many transports.
        raise DataError(f"{address}: {type(error).__name__}: {first_line(error)}") from error
