"""Formats of text files by their first bytes: compression, encoding, binary files.

gzip, bzip2, xz and UTF-16 are read, whatever the name of the file; what cannot be read is refused
with its name and the remedy.  Nothing is read ahead of what is asked for, so that lines come out of
a pipe as they go in.
"""

from __future__ import annotations

import bz2
import codecs
import functools
import gzip
import io
import itertools
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from transduce.errors import DataError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK_BYTES = 2**16
DOCUMENT_BYTES = 2**13
"""Enough to know a document by."""
NOT_UTF_8 = b"\xff"
"""Stands for half a character of UTF-16 at the end of a file."""


class Packing(NamedTuple):
    """A compression that is read, and written where the name of a file asks for it."""

    name: str
    suffix: str
    begins: bytes
    reader: Callable[[BinaryIO], object]
    writer: Callable[[BinaryIO], object]


PACKINGS = (
    Packing(
        "gzip",
        ".gz",
        b"\x1f\x8b",
        lambda file: gzip.GzipFile(fileobj=file),
        # Without the time: equal texts are equal files.
        lambda file: gzip.GzipFile("", "wb", fileobj=file, mtime=0),
    ),
    Packing("bzip2", ".bz2", b"BZh", bz2.BZ2File, functools.partial(bz2.BZ2File, mode="wb")),
    Packing("xz", ".xz", b"\xfd7zXZ\0", lzma.LZMAFile, functools.partial(lzma.LZMAFile, mode="wb")),
)
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
"""Its first block, or its end; three letters alone could begin a text."""
_BZIP2_BYTES = 10
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
UNREADABLE = {
    codecs.BOM_UTF32_LE: "is UTF-32; convert it, for example with iconv -f UTF-32 -t UTF-8",
    codecs.BOM_UTF32_BE: "is UTF-32; convert it, for example with iconv -f UTF-32 -t UTF-8",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd; unpack it first, for example with zstd -dc",
    b"\x04\x22\x4d\x18": "is compressed by lz4; unpack it first, for example with lz4 -dc",
    b"7z\xbc\xaf\x27\x1c": "is a 7z archive; unpack it first, for example with 7z x",
    b"PK\x03\x04": "is a zip archive, as .docx and .xlsx files are; unpack it first, for example "
    "with unzip -p, or save it as plain text",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "is a document of an office program; save it as plain "
    "text",
    b"%PDF-": "is a PDF document; save it as plain text, for example with pdftotext",
    b"{\\rtf1": "is an RTF document; save it as plain text",
    b"PAR1": 'is a Parquet file; data are read from one by kind = "parquet"',
}
"""What a file is that begins so, and the remedy."""
_BEGINNINGS = (*(packing.begins for packing in PACKINGS), *UTF_16, *UNREADABLE)
_TAR = slice(257, 262), b"ustar"

_AS_TEXT = "; put its texts into a file with one a line"
_END = rb"[ \t\r]*\n"
_PROLOGUE = rb"(?:<\?xml\b[^\t]*?\?>|<!DOCTYPE[^>]*>|\s)*"
DOCUMENTS = {
    "a PO catalogue": re.compile(
        rb'(?:#.*\n|%s)*(?:msgctxt ".*"%s)?msgid ".*"%s(?:".*"%s)*msgstr "' % ((_END,) * 4)
    ),
    "SRT subtitles": re.compile(rb"\d+%s\d\d:\d\d:\d\d,\d{3} --> \d\d:" % _END),
    "WebVTT subtitles": re.compile(rb"WEBVTT\b[^\t\n]*\n(?:.*\n){0,99}?[\d:]+\.\d{3} --> "),
    "a TMX translation memory": re.compile(_PROLOGUE + rb"<tmx\b"),
    "an XLIFF file": re.compile(_PROLOGUE + rb"<xliff\b"),
    "an HTML page": re.compile(rb"(?:<!doctype html\b|<html\b(?!.*</html>))[^\t\n]*\n", re.I),
    "an XML document": re.compile(rb"<\?xml\s+version\s*=[^\t\n]*\?>[^\t\n]*(?:\n|$)"),
}
"""Documents whose markup would be taken for text, by beginnings that no line of text has."""


def text_of(file: BinaryIO, name: str) -> io.BufferedReader:
    """The text of an open file as UTF-8: unpacked, and from UTF-16 where that is its mark.

    name: the file's, for messages, and for what its suffix promises.  Raises DataError, perhaps
    while reading, for a format that is no text and for damage.
    """
    head, chunks = _begun(_chunks_of(file))
    packing = _packing_of(head)
    if packing is None and head:
        _check_suffix(name)
    if packing is not None:
        head, chunks = _begun(_unpacked(packing, _reader(chunks), name))
    for beginning, remedy in UNREADABLE.items():
        if head.startswith(beginning):
            raise DataError(f"{name} {remedy}")
    where, mark = _TAR
    if head[where] == mark:
        raise DataError(f"{name} is a tar archive; unpack it first, for example with tar -x")
    return _reader(_from_utf_16(chunks) if head.startswith(UTF_16) else chunks)


def check_no_document(head: bytes, name: str) -> None:
    """Raises DataError where a text, by its first bytes, is a document with markup around texts."""
    head = head[:DOCUMENT_BYTES].removeprefix(codecs.BOM_UTF8).lstrip()
    for what, beginning in DOCUMENTS.items():
        if beginning.match(head):
            raise DataError(f"{name} is {what}, not lines of text{_AS_TEXT}")


def is_plain(path: Path) -> bool:
    """Whether the size of a file is its text's: a regular file, not packed, not in UTF-16."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_BZIP2_BYTES)
    return _packing_of(head) is None and not head.startswith(UTF_16)


def packed(file: BinaryIO, name: str) -> BinaryIO:
    """A file to write, in which what is written is compressed if the name ends so."""
    packing = _named(name)
    return file if packing is None else cast(BinaryIO, packing.writer(file))


def _named(name: str) -> Packing | None:
    suffix = PurePosixPath(name).suffix.lower()
    return next((packing for packing in PACKINGS if packing.suffix == suffix), None)


def _check_suffix(name: str) -> None:
    """Raises DataError for a name that promises a compression; the file was found to have none."""
    packing = _named(name)
    if packing is not None:
        raise DataError(
            f"{name} is not a whole {packing.name} file (it begins otherwise); fetch it again, or "
            f"take {packing.suffix} off its name if it is text"
        )


def _packing_of(head: bytes) -> Packing | None:
    for packing in PACKINGS:
        if head.startswith(packing.begins) and (packing.name != "bzip2" or _BZIP2.match(head)):
            return packing
    return None


def _begun(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Enough of the first bytes to know the format by, and all chunks again.

    No beginning of a format has a line end, so that a line which is there is not waited with.
    """
    head = b""
    for chunk in chunks:
        head += chunk
        short = len(head) < _BZIP2_BYTES and b"\n" not in head
        if not (short and any(b.startswith(head) or head.startswith(b) for b in _BEGINNINGS)):
            break
    return head, itertools.chain([head] if head else [], chunks)


def _chunks_of(file: BinaryIO) -> Iterator[bytes]:
    """The bytes of a file as they come."""
    read = getattr(file, "read1", file.read)
    while chunk := read(CHUNK_BYTES):
        yield chunk


def _unpacked(packing: Packing, file: BinaryIO, name: str) -> Iterator[bytes]:
    try:
        yield from _chunks_of(cast(BinaryIO, packing.reader(file)))
    except DataError:
        raise
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's, of the file below
        raise DataError(
            f"{name} is not a whole {packing.name} file ({error}); fetch it again"
        ) from None


def _from_utf_16(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """As UTF-8; what is no character becomes bytes that are not UTF-8, to be reported as such."""
    decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
    for chunk in chunks:
        if text := decoder.decode(chunk):
            yield text.encode("utf-8", "surrogatepass")
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        yield NOT_UTF_8


class _Stream(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """It is for reading."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer with what is there, waiting only if there is nothing; 0 at the end."""
        if not self._left:
            self._left = memoryview(next(self._chunks, b""))
        into = memoryview(buffer)
        count = min(len(into), len(self._left))
        into[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _reader(chunks: Iterator[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_Stream(chunks), CHUNK_BYTES)
