r"""Lines of input as they arrive: each is read at once, and none is dropped or merged.

Only "\n" ends a line.  Unlike `data.lines`, which refuses invalid UTF-8, this module replaces it
with a warning, to keep one output line per input line.
"""

from __future__ import annotations

import collections
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from transduce.data.formats import is_plain
from transduce.data.lines import lenient_text, raw_lines
from transduce.errors import DataError, reading

logger = logging.getLogger("transduce")

STDIN = "-"
BATCH_LINES = 512
AHEAD_BYTES = 2**22
"""Limit of reading ahead; a single longer line is allowed."""
BAR_AFTER_SECONDS = 2.0


@dataclass(frozen=True)
class LineBatch:
    """Consecutive lines, without their ends."""

    first: int
    """Number of the first line, from 0."""
    lines: list[str]
    n_bytes: int
    """Bytes of input, line ends included."""


class LineReader:
    """Iterator over batches of the lines available, waiting only if there are none.

    A thread reads ahead a bounded number of bytes.  Opening raises DataError for an unreadable
    file, iterating for a damaged one.
    """

    def __init__(self, name: str = STDIN) -> None:
        """name: file, plain or compressed, or "-" for stdin."""
        self.name = "stdin" if name == STDIN else name
        self._file = _open(name)
        self._changed = threading.Condition()
        self._lines: collections.deque[bytes] = collections.deque()
        self._bytes = 0
        self._ended = False
        self._error: Exception | None = None
        threading.Thread(target=self._read, name="lines", daemon=True).start()

    @property
    def size(self) -> int | None:
        """Size of a plain regular file in bytes; None for other inputs."""
        path = Path(self.name)
        plain = self.name != "stdin" and is_plain(path)
        return path.stat().st_size if plain else None

    def __iter__(self) -> Iterator[LineBatch]:
        first = 0
        while raw := self._take():
            numbered = enumerate(raw, first + 1)
            texts = [lenient_text(line, self.name, number) for number, line in numbered]
            yield LineBatch(first, texts, sum(map(len, raw)))
            first += len(raw)
        if self._error is not None:
            raise self._error

    def _take(self) -> list[bytes]:
        """Take the lines available, at least one; none at the end."""
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._ended)
                count = min(len(self._lines), BATCH_LINES)
                taken = [self._lines.popleft() for _ in range(count)]
                self._bytes -= sum(map(len, taken))
                self._changed.notify_all()
            return taken
        except RuntimeError as error:  # Ctrl-C, as `wait` was about to take its lock again
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise

    def _read(self) -> None:
        try:
            for line in raw_lines(self._file, self.name):
                self._put(line)
        except Exception as error:  # of any kind: raised again in the reader
            self._error = error
        self._file.close()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _put(self, line: bytes) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < AHEAD_BYTES)
            self._lines.append(line)
            self._bytes += len(line)
            self._changed.notify_all()  # a single waiter may have been ended by Ctrl-C


def shown(reader: LineReader, quiet: bool = False) -> Iterator[LineBatch]:
    """Yield the batches, with a progress bar on stderr.

    The bar appears after two seconds, for a regular file and at a terminal, unless `quiet`.
    """
    size = reader.size
    if quiet or size is None or sys.stderr is None or not sys.stderr.isatty():
        yield from reader
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    bar = Progress(console=console, transient=True, redirect_stdout=False)
    task = bar.add_task("translating", total=size)
    begin = time.monotonic()
    try:
        for batch in reader:
            if time.monotonic() - begin > BAR_AFTER_SECONDS:
                bar.start()
            yield batch
            bar.advance(task, batch.n_bytes)
    finally:
        bar.stop()


def _open(name: str) -> BinaryIO:
    if name == STDIN:
        if sys.stdin is None:
            raise DataError("stdin is closed; give FILE or connect stdin")
        if sys.stdin.isatty():
            logger.info("reading from the terminal; Ctrl-D ends the input")
        # Not `sys.stdin.buffer`: Python closes it at exit, and would block or crash on the lock
        # held by the reading thread.
        return os.fdopen(sys.stdin.fileno(), "rb", closefd=False)
    with reading(name):
        return Path(name).open("rb")
