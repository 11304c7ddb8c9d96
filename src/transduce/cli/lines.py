r"""Lines of input as they arrive: each is read at once, and none is dropped or merged.

Only "\n" ends a line.  Unlike `data.lines`, which refuses invalid UTF-8, this module replaces it
with a warning, to keep an output line per input line.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from transduce.data.formats import is_plain
from transduce.data.lines import available_lines, lenient_text
from transduce.errors import DataError, reading

logger = logging.getLogger("transduce")

STDIN = "-"
BATCH_LINES = 512
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
    """Batches of the lines available, waiting only if there are none.

    Construction raises DataError for an unreadable file, iteration for damage.
    """

    def __init__(self, name: str = STDIN) -> None:
        """name: file, plain or compressed, or "-" for stdin."""
        self.name = "stdin" if name == STDIN else name
        self._path = None if name == STDIN else Path(name)
        if self._path is None:
            if sys.stdin is None:
                raise DataError("stdin is closed; give FILE or connect stdin")
        elif not self._path.exists() and not self._path.suffix and os.sep not in name:
            raise DataError(
                f"{name}: no such file; for a text, give it to stdin: echo {name!r} | …"
            )
        elif not self._path.is_fifo():  # whose writer would take this for its end
            self._open().close()

    @property
    def size(self) -> int | None:
        """Size of a plain regular file in bytes; None for other inputs."""
        if self._path is None or not is_plain(self._path):
            return None
        return self._path.stat().st_size

    def __iter__(self) -> Iterator[LineBatch]:
        first = 0
        with self._open() as file:
            for raw in available_lines(file, self.name, BATCH_LINES):
                numbered = enumerate(raw, first + 1)
                texts = [lenient_text(line, self.name, number) for number, line in numbered]
                yield LineBatch(first, texts, sum(map(len, raw)))
                first += len(raw)

    def _open(self) -> BinaryIO:
        if self._path is None:
            if sys.stdin.isatty():
                logger.info("reading from the terminal; Ctrl-D ends the input")
            return os.fdopen(sys.stdin.fileno(), "rb", closefd=False)
        with reading(self.name):
            return self._path.open("rb")


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
