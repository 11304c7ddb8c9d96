"""Locks between processes, and files that are complete or absent.

Locks are held by the operating system, and free again when their holder dies.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from filelock import BaseFileLock


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
