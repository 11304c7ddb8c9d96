"""Files that are complete or absent, locks between processes, and limits on what a file may
take.

Each limit is an environment variable, set by the user of the program: not a setting of the recipe,
which may come from the same untrusted source as the file.  Limits on decoding are in
`decoding.work`.

Locks are held by the operating system, and free again when their holder dies.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from transduce.errors import DataError, SettingError

if TYPE_CHECKING:
    from filelock import BaseFileLock


MAX_DIGITS = 12
SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which JSON can spell and UTF-8 cannot."""


class Limit(NamedTuple):
    """A limit: an environment variable and its default."""

    variable: str
    default: int
    unit: str = "MiB"
    """Empty for a plain number."""

    def most(self) -> int:
        """The current value.  Raises SettingError if the variable is not a whole number."""
        text = os.environ.get(self.variable)
        if text is None:
            return self.default
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            of_unit = f" of {self.unit}" if self.unit else ""
            raise SettingError(
                f"{self.variable}={text!r} in the environment must be a whole number{of_unit}; "
                f"the default is {self.default}"
            )
        return int(text)

    def remedy(self) -> str:
        """End of a message: the remedy for a trusted file."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"if you trust it, set {self.variable} above {self.most()}{unit}"


LINE_LIMIT = Limit("TRANSDUCE_LIMIT_LINE", 64)
"""Size of a line of text; a file without line ends would otherwise be read whole."""
IMAGE_LIMIT = Limit("TRANSDUCE_LIMIT_IMAGE", 256)
"""Unpacked size of a file in a zip archive of images."""
AUDIO_LIMIT = Limit("TRANSDUCE_LIMIT_AUDIO", 120, "minutes")
"""Length of a recording read as a whole: a megabyte of compressed silence could fill any memory."""
RECORDING_LIMIT = Limit("TRANSDUCE_LIMIT_RECORDING", 1024)
"""Unpacked size of a file in a zip archive of recordings."""
IDX_LIMIT = Limit("TRANSDUCE_LIMIT_IDX", 2048)
"""Unpacked size of an IDX file: a few compressed megabytes could fill any memory."""
RUN_FILE_LIMIT = Limit("TRANSDUCE_LIMIT_RUN_FILE", 256)
"""Size of a recipe, vocabulary or similar file of a run; weights are checked against their
header."""


def from_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises ValueError for invalid JSON, and for deep nesting (a few kilobytes of brackets), for
    which `json.loads` raises an unexpected exception.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> Any:
    """Parse a JSON file of a run.  Raises OSError; also ValueError if it is too large."""
    if path.stat().st_size > RUN_FILE_LIMIT.most() << 20:
        raise ValueError(f"the file is too large; {RUN_FILE_LIMIT.remedy()}")
    return from_json(path.read_bytes())


def read_json_object(path: Path, kind: type = dict) -> Any:
    """Content of a JSON file, an object or else a list.  Raises DataError for other content."""
    try:
        content = read_json(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error})") from None
    if not isinstance(content, kind):
        raise DataError(f"{path} must contain a JSON {'object' if kind is dict else 'list'}")
    return content


class LockHeldError(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Hold the lock of a file; the file is created if missing, and kept.

    Raises LockHeldError while another process holds it, OSError if it cannot be created.
    """
    lock = _taken(path)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def awaited_lock(
    path: Path, waiting: Callable[[], object] = lambda: None, blocking: bool = True
) -> Iterator[bool]:
    """Hold the lock of a file that exists only while it is held; True after waiting for it.

    waiting: called once where another process holds the lock.  Raises LockHeldError then, unless
    `blocking`, and OSError if the file cannot be created.
    """
    waited = False
    try:
        lock = _taken(path)
    except LockHeldError:
        if not blocking:
            raise
        waiting()
        lock = _taken(path, blocking=True)
        waited = True
    try:
        yield waited
    finally:
        # Removed while held: a process that waits for the removed file takes a new one.  Windows
        # removes no open file; there `release` does.
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def _taken(path: Path, blocking: bool = False) -> BaseFileLock:
    from filelock import FileLock, Timeout  # a tenth of a second, which translating need not pay

    lock = FileLock(path)
    try:
        lock.acquire(blocking=blocking)
    except Timeout:
        raise LockHeldError(str(path)) from None
    return lock


def user_cache(name: str) -> Path:
    """Directory of this user's cache; XDG_CACHE_HOME moves it."""
    home = os.environ.get("XDG_CACHE_HOME")
    if not home:
        home = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
    return Path(home).expanduser() / "transduce" / name


@contextlib.contextmanager
def whole_file(path: Path, ending: str = ".partial") -> Iterator[BinaryIO]:
    """Write a file that takes its name, replacing an older file, once it is complete and on disk.

    ending: of the name until then, which begins with a dot.  Raises OSError.
    """
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}{ending}")
    try:
        with aside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        error.filename = str(path)  # one of writing names no file
        raise
    finally:
        aside.unlink(missing_ok=True)
