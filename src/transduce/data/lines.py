"""Lines of text, read strictly: what is not UTF-8 is an error that says where, never a guess.

`lenient_text` is for those who need one line out for every line in.
"""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from transduce.errors import DataError, reading
from transduce.limits import LINE_LIMIT

logger = logging.getLogger("transduce")

BYTE_ORDER_MARK = "\ufeff"


def read_lines(path: Path) -> Iterator[str]:
    r"""The lines of a UTF-8 text file, plain or compressed (`.gz`), without their line ends.

    Only "\n" ends a line, since U+0085 and U+2028 do occur inside sentences; the "\r" of Windows
    files and a byte order mark are dropped.  The file is streamed.  Raises DataError, while
    reading, for a missing, empty or damaged file and for the first line that is not UTF-8.
    """
    for line in read_whole_lines(path):
        yield line.removesuffix("\n").removesuffix("\r")


def read_whole_lines(path: Path) -> Iterator[str]:
    """The same lines with their line ends: side by side they are the file."""
    number = 0
    for number, raw in enumerate(_raw_lines(path), 1):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}: line {number}, byte {error.start + 1} of the line is not valid UTF-8; "
                "convert the file, for example with iconv -f ENCODING -t UTF-8"
            ) from None
        if number == 1:
            text = text.removeprefix(BYTE_ORDER_MARK)
        yield text
    if not number:
        raise DataError(f"{path} is empty; it needs at least one line of text")


def lenient_text(raw: bytes, name: str, number: int) -> str:
    """A line without its end; what is not UTF-8 becomes U+FFFD, with a warning.

    name, number: of the input, and of the line in it from 1.
    """
    line = raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        logger.warning("%s: line %d is not valid UTF-8; what is not became U+FFFD", name, number)
        text = line.decode("utf-8", "replace")
    return text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text


def raw_lines(file: IO[bytes] | gzip.GzipFile, name: str) -> Iterator[bytes]:
    """Lines of an open file as bytes with their ends.

    Raises DataError, while reading, for a line without end and for what the file system says.
    """
    number = 0
    longest = LINE_LIMIT.mib() << 20
    with reading(name):
        while raw := file.readline(longest + 1):
            number += 1
            if len(raw) > longest:
                raise DataError(
                    f"{name}: line {number} is longer than {longest >> 20} MiB; "
                    f"is this a text file with line ends? {LINE_LIMIT.remedy()}"
                )
            yield raw


def _raw_lines(path: Path) -> Iterator[bytes]:
    with reading(path), _open(path) as file:
        yield from raw_lines(file, str(path))


def _open(path: Path) -> IO[bytes] | gzip.GzipFile:
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    return path.open("rb")
