"""Lines of text, read strictly: an error names the place of bytes that are not UTF-8.

`lenient_text` gives a line for every line.
"""

from __future__ import annotations

import functools
import itertools
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from transduce.data.formats import check_no_document, text_of
from transduce.errors import DataError, reading
from transduce.support.limits import LINE_LIMIT
from transduce.text.encodings import likely_encoding

logger = logging.getLogger("transduce")

TRIED, FEW = 2_000, 0.02
"""Lines that tell the encoding of a file, and the share of them that may be damaged."""


def read_lines(path: Path, lenient: bool = False) -> Iterator[str]:
    r"""Lines of a text file, without their line ends.

    The file is UTF-8, or UTF-16 with a byte order mark, plain or compressed (see `data.formats`).
    Only "\n" ends a line, since U+0085 and U+2028 occur inside sentences; the "\r" of Windows files
    and a byte order mark are dropped.  The file is streamed.  Raises DataError, while reading, for
    a missing, empty or damaged file, for a document that is not lines of text, and for the first
    line that is not UTF-8; lenient: its bytes become U+FFFD.
    """
    with reading(path), path.open("rb") as file:
        for line in _decoded(raw_lines(file, str(path)), path, lenient):
            yield line.removesuffix("\n").removesuffix("\r")


def read_whole_lines(path: Path) -> Iterator[str]:
    """The same lines with their line ends; any document is accepted."""
    with reading(path), path.open("rb") as file:
        yield from _decoded(_lines_of(text_of(file, str(path)), str(path)), path)


def _decoded(lines: Iterator[bytes], path: Path, lenient: bool = False) -> Iterator[str]:
    number = 0
    for number, raw in enumerate(lines, 1):
        try:
            text = raw.decode("utf-8", "replace" if lenient else "strict")
        except UnicodeDecodeError as error:
            place = (
                f"{path}: line {number} is not valid UTF-8 at byte {error.start + 1} of the line"
            )
            raise DataError(place + _conversion(raw)) from None
        yield text
    if not number:
        raise DataError(f"{path} is empty; it needs at least one line of text")


def _conversion(raw: bytes) -> str:
    """End of a message about bytes that are not UTF-8: the likely encoding, and a remedy."""
    encoding = likely_encoding(raw)
    guess = f"; it seems to be {encoding}" if encoding else ""
    name = encoding or "ENCODING"
    return f"{guess}; convert the file, for example with iconv -f {name} -t UTF-8"


def check_utf_8(path: Path) -> None:
    """Raises DataError for a text file in another encoding: of its first lines, more than a few are
    not UTF-8."""
    invalid, first, number = [], 0, 0
    with reading(path), path.open("rb") as file:
        for number, raw in enumerate(itertools.islice(raw_lines(file, str(path)), TRIED), 1):
            try:
                raw.decode("utf-8")
            except UnicodeDecodeError:
                first = first or number
                invalid.append(raw)
    if len(invalid) > max(1, FEW * number):
        counted = f"{len(invalid)} of the first {number} lines are not valid UTF-8"
        raise DataError(f"{path}: line {first}: {counted}{_conversion(b''.join(invalid))}")


def lenient_text(raw: bytes, name: str, number: int) -> str:
    """A line without its end; invalid UTF-8 becomes U+FFFD, with a warning about line `number` of
    `name`."""
    line = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        logger.warning("%s: line %d is not valid UTF-8; invalid bytes became U+FFFD", name, number)
        return line.decode("utf-8", "replace")


@functools.lru_cache(maxsize=1024)
def warn_once(message: str) -> None:
    """Log a warning once per file, even if it is read several times, for example for its splits."""
    logger.warning("%s", message)


def raw_lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    """Lines of an open file, plain or compressed, as UTF-8 with their ends.

    Raises DataError, while reading, for other files, an endless line, and errors of the file
    system.
    """
    with reading(name):
        text = text_of(file, name)
        check_no_document(text.peek(), name)
        yield from _lines_of(text, name)


def available_lines(file: BinaryIO, name: str, most: int) -> Iterator[list[bytes]]:
    """Batches of the same lines, at most `most`: those that have come, waiting only if there are
    none."""
    with reading(name):
        text = text_of(file, name)
        check_no_document(text.peek(), name)
        lines = _lines_of(text, name)
        is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        complete = most
        while True:
            if not is_regular:
                complete = min(max(1, text.peek().count(b"\n")), most)
            batch: list[bytes] = []
            try:
                batch.extend(itertools.islice(lines, complete))
            except DataError:
                if batch:
                    yield batch
                raise
            if not batch:
                return
            yield batch


def _lines_of(file: BinaryIO, name: str) -> Iterator[bytes]:
    number = 0
    longest = LINE_LIMIT.most() << 20
    while raw := file.readline(longest + 1):
        number += 1
        if len(raw) > longest:
            raise DataError(
                f"{name}: line {number} is longer than {longest >> 20} MiB; check that "
                f"this is a text file with line ends; {LINE_LIMIT.remedy()}"
            )
        yield raw
