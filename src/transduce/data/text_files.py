"""Text files: compression and encoding by the first bytes, lines read strictly, escaped texts
detected.

gzip, bzip2, xz, zstd and UTF-16 are read, whatever the file name; other formats are refused with
the name and the remedy.  Reading never runs ahead of the request, so lines pass through a pipe
without delay.

`lenient_text` gives a line for every line.

Read unchanged, they would be learned as text; a warning names the setting that decodes them.
"""

from __future__ import annotations

import bz2
import codecs
import functools
import gzip
import html
import io
import itertools
import logging
import lzma
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from transduce.errors import DataError, extra_module, reading
from transduce.support.files import LINE_LIMIT

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


CHUNK_BYTES = 2**16
HEAD_BYTES = 2**10
"""Bytes read to recognise an encoding."""
DOCUMENT_BYTES = 2**13
"""Number of bytes enough to recognise a document."""
NOT_UTF_8 = b"\xff"
"""Replacement for half a UTF-16 character at the end of a file."""


class Packing(NamedTuple):
    """A compression for reading, and for writing to a file with its suffix."""

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
    Packing(
        "lzma",
        ".lzma",
        b"\x5d\0\0",
        lzma.LZMAFile,
        functools.partial(lzma.LZMAFile, mode="wb", format=lzma.FORMAT_ALONE),
    ),
    Packing(
        "zstd",
        ".zst",
        b"\x28\xb5\x2f\xfd",
        lambda file: _reader(_without_zstd(file)),
        lambda file: _zstandard().ZstdCompressor(level=6).stream_writer(file, closefd=False),
    ),
)
_BZIP2 = re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)")
"""Its first block, or its end; three letters alone could begin a text."""
_BZIP2_BYTES = 10
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
UNREADABLE = {
    codecs.BOM_UTF32_LE: "is UTF-32; convert it, for example with iconv -f UTF-32 -t UTF-8",
    codecs.BOM_UTF32_BE: "is UTF-32; convert it, for example with iconv -f UTF-32 -t UTF-8",
    b"\x04\x22\x4d\x18": "is compressed by lz4; unpack it first, for example with lz4 -dc",
    b"\x50\x2a\x4d\x18": "is compressed by zstd; unpack it first, for example with zstd -dc",
    b"LZIP\1": "is compressed by lzip; unpack it first, for example with lzip -dc",
    b"\x1f\x9d": "is compressed by compress; unpack it first, for example with gzip -dc",
    b"7z\xbc\xaf\x27\x1c": "is a 7z archive; unpack it first, for example with 7z x",
    b"Rar!\x1a\x07": "is a RAR archive; unpack it first, for example with unrar p",
    b"PK\5\6": "is an empty zip archive",
    b"PK\x03\x04": "is a zip archive, as .docx and .xlsx files are; unpack it first, for example "
    "with unzip -p, or save it as plain text",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "is an office document; save it as plain text",
    b"%PDF-": "is a PDF document; save it as plain text, for example with pdftotext",
    b"{\\rtf1": "is an RTF document; save it as plain text",
    b"PAR1": 'is a Parquet file; read it with kind = "parquet"',
    b"ARROW1\0\0": 'is an Arrow file; read data sets of such files with kind = "hub"',
    b"SQLite format 3\0": "is an SQLite database; write its texts to a file with one a line",
    b"\x89PNG\r\n": "is a PNG image; give a file with the path of one image a line",
    b"\xff\xd8\xff": "is a JPEG image; give a file with the path of one image a line",
}
"""First bytes of unreadable formats, with their names and the remedies."""
_BEGINNINGS = (
    *(packing.begins for packing in PACKINGS),
    codecs.BOM_UTF8,
    *UTF_16,
    *UNREADABLE,
)
_TAR = slice(257, 262), b"ustar"

_AS_TEXT = "; extract its texts into a file, one per line"
_END = rb"[ \t\r]*\n"
_PROLOGUE = rb"(?:<\?xml\b[^\t]*?\?>|<!DOCTYPE[^>]*>|\s)*"
_TIME = rb"\d\d?:\d\d:\d\d[,.]\d{1,3}"
DOCUMENTS = {
    "a PO catalogue": re.compile(
        rb'(?:#.*\n|%s)*(?:domain ".*"%s)?(?:msgctxt ".*"%s(?:".*"%s)*)?msgid ".*"%s(?:".*"%s)*'
        rb'(?:msgid_plural ".*"%s(?:".*"%s)*)?msgstr(?:\[0\])? "' % ((_END,) * 8)
    ),
    "SRT subtitles": re.compile(rb"\d+%s%s --> %s" % (_END, _TIME, _TIME)),
    "SBV subtitles": re.compile(rb"%s,%s%s" % (_TIME, _TIME, _END)),
    "SSA subtitles": re.compile(rb"\[Script Info\]%s" % _END, re.I),
    "WebVTT subtitles": re.compile(rb"WEBVTT\b[^\t\n]*\n(?:.*\n){0,99}?[\d:]+\.\d{3} --> "),
    "a TMX translation memory": re.compile(_PROLOGUE + rb"<tmx\b"),
    "an XLIFF file": re.compile(_PROLOGUE + rb"<(?:\w+:)?xliff\b"),
    "an SGML test set": re.compile(rb"<(?:src|ref|tst)set\b[^>\t]*>" + _END, re.I),
    "an HTML page": re.compile(rb"(?:<!doctype html\b|<html\b(?!.*</html>))[^\t\n]*\n", re.I),
    "an XML document": re.compile(
        rb"<\?xml\s+version\s*=[^\t\n]*\?>[^\t\n]*(?:\n|$)"
        rb"|<!DOCTYPE\b[^\t\n]*>%s|<!--[^\t]*?-->\s*<[!\w][^\t\n]*>%s"
        rb"|<resources\b[^\t\n>]*>%s" % (_END, _END, _END)
    ),
}
"""Documents with markup that would be taken for text, by beginnings no text line has."""


def text_of(file: BinaryIO, name: str) -> io.BufferedReader:
    """The text of an open file as UTF-8, unpacked, without a byte order mark.

    Raises DataError, possibly while reading, for a format that is not text and for damage.  name:
    in messages, and for its suffix.
    """
    head, chunks = _begun(_chunks_of(file))
    packing = _packing_of(head)
    if packing is None and head:
        _check_suffix(name)
    if packing is not None:
        head, chunks = _begun(unpacked_chunks(packing, _reader(chunks), name))
        if (within := _packing_of(head)) is not None:
            raise DataError(
                f"{name} is compressed twice, by {within.name} and then by {packing.name}; unpack "
                "it once first"
            )
    for beginning, remedy in UNREADABLE.items():
        if head.startswith(beginning):
            raise DataError(f"{name} {remedy}")
    where, mark = _TAR
    if head[where] == mark:
        raise DataError(f"{name} is a tar archive; unpack it first, for example with tar -x")
    if head.startswith(UTF_16):
        return _reader(_from_utf_16(chunks))
    if head.startswith(codecs.BOM_UTF8):
        return _reader(_without_mark(chunks))
    if encoding := _unmarked_utf_16(head):
        raise DataError(
            f"{name} seems to be UTF-16 without its byte order mark; convert it, for example with "
            f"iconv -f {encoding} -t UTF-8"
        )
    return _reader(chunks)


def check_no_document(head: bytes, name: str) -> None:
    """Raises DataError if the first bytes are from a document with markup."""
    head = head[:DOCUMENT_BYTES].lstrip()
    for what, beginning in DOCUMENTS.items():
        if beginning.match(head):
            raise DataError(f"{name} is {what}, not lines of text{_AS_TEXT}")


def is_plain(path: Path) -> bool:
    """True if the size of a file equals its text's: regular, not packed, not UTF-16."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_BZIP2_BYTES)
    return _packing_of(head) is None and not head.startswith(UTF_16)


def packed(file: BinaryIO, name: str) -> BinaryIO:
    """A file to write, compressed if its name ends so."""
    packing = _named(name)
    return file if packing is None else cast(BinaryIO, packing.writer(file))


def _named(name: str) -> Packing | None:
    suffix = PurePosixPath(name).suffix.lower()
    return next((packing for packing in PACKINGS if packing.suffix == suffix), None)


def _check_suffix(name: str) -> None:
    """Raises DataError if the name has a compression suffix but the content is not compressed."""
    packing = _named(name)
    if packing is not None:
        raise DataError(
            f"{name} is not in {packing.name} format (wrong first bytes); download it again, or "
            f"remove {packing.suffix} from its name if it is plain text"
        )


def _packing_of(head: bytes) -> Packing | None:
    for packing in PACKINGS:
        if head.startswith(packing.begins) and (packing.name != "bzip2" or _BZIP2.match(head)):
            return packing
    return None


def _unmarked_utf_16(head: bytes) -> str | None:
    """The encoding of UTF-16 without a mark: zero is half of blanks and Latin letters, and all is
    readable."""
    zeros = [head[first:HEAD_BYTES:2].count(0) for first in (0, 1)]
    if max(zeros) < max(3, len(head[:HEAD_BYTES]) // 40):
        return None
    name = "UTF-16BE" if zeros[0] > zeros[1] else "UTF-16LE"
    text = head[:HEAD_BYTES].decode(name, "replace")
    return name if all(sign.isprintable() or sign.isspace() for sign in text) else None


def _begun(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first bytes, enough to detect the format, and all chunks again.

    No format begins with a line end, so a complete line is never held back.
    """
    head = b""
    for chunk in chunks:
        head += chunk
        short = len(head) < _BZIP2_BYTES and b"\n" not in head
        if not (short and any(b.startswith(head) or head.startswith(b) for b in _BEGINNINGS)):
            break
    return head, itertools.chain([head] if head else [], chunks)


def _chunks_of(file: BinaryIO) -> Iterator[bytes]:
    read = getattr(file, "read1", file.read)
    while chunk := read(CHUNK_BYTES):
        yield chunk


def _zstandard() -> Any:
    return extra_module("zstandard", "a file compressed by zstd", "scale")


def _without_zstd(file: BinaryIO) -> Iterator[bytes]:
    zstandard, frame = _zstandard(), None
    try:
        for chunk in _chunks_of(file):
            while chunk:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                if data := frame.decompress(chunk):
                    yield data
                chunk, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    except zstandard.ZstdError as error:
        raise EOFError(str(error)) from None
    if frame is not None:
        raise EOFError("its end is missing")


def unpacked_chunks(packing: Packing, file: BinaryIO, name: str) -> Iterator[bytes]:
    """Unpack a compressed file, named `name` in the DataError of a damaged one."""
    try:
        yield from _chunks_of(cast(BinaryIO, packing.reader(file)))
    except DataError:
        raise
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system's, of the file below
        raise DataError(
            f"{name} is a damaged {packing.name} file ({error}); download it again"
        ) from None


def _from_utf_16(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Convert to UTF-8; invalid characters become invalid UTF-8, to be reported as such."""
    decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
    for chunk in chunks:
        if text := decoder.decode(chunk):
            yield text.encode("utf-8", "surrogatepass")
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        yield NOT_UTF_8


def _without_mark(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Drop the byte order mark of UTF-8, complete in the first chunk."""
    if first := next(chunks).removeprefix(codecs.BOM_UTF8):  # an empty one would be the end
        yield first
    yield from chunks


class _Stream(io.RawIOBase):
    """Chunks as a file object."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer with available bytes, waiting only if there are none; 0 at the end."""
        if not self._left:
            self._left = memoryview(next(self._chunks, b""))
        into = memoryview(buffer)
        count = min(len(into), len(self._left))
        into[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _reader(chunks: Iterator[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_Stream(chunks), CHUNK_BYTES)


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
            fault = (
                f"{path}: line {number} is not valid UTF-8 at byte {error.start + 1} of the line"
            )
            raise DataError(fault + _conversion(raw)) from None
        yield text
    if not number:
        raise DataError(f"{path} is empty; it needs at least one line of text")


def _conversion(raw: bytes) -> str:
    """End of a message about bytes that are not UTF-8: the likely encoding, and a remedy."""
    from transduce.text.encodings import likely_encoding  # with all tokenizers

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
    none.

    file: opened in binary mode.  name: for messages.
    """
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


ROWS_TO_JUDGE = 1000
"""Rows examined before the share of escaped rows is judged."""
QUOTED_SHARE = 0.9
MIN_QUOTED = 3
ENTITY_SHARE = 0.01
_QUOTED = re.compile('"(?:[^"]|"")*"')
_ENTITY = re.compile(r"&(?:\w+|#\d+|#[xX][0-9a-fA-F]+);")
_USUAL = re.compile(r"&(?:quot|apos|amp|lt|gt|nbsp|#\d{2,5}|#[xX][0-9a-fA-F]{2,4});")


def unescaped(text: str) -> str:
    """Decode entities such as `&quot;`; control characters, such as line ends, become spaces."""
    return _ENTITY.sub(_character, text) if "&" in text else text


def _character(entity: re.Match[str]) -> str:
    character = html.unescape(entity[0])
    return " " if len(character) == 1 and ord(character) < ord(" ") else character


class Entities:
    """Warn about entities in texts read unchanged."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._escaped = 0
        self._rows = 0
        self._example = ""

    def look_at(self, *texts: str) -> None:
        """Record the texts of a row."""
        self._rows += 1
        if self._rows > ROWS_TO_JUDGE:
            return
        match = next((m for text in texts if "&" in text and (m := _USUAL.search(text))), None)
        if match is not None:
            self._escaped += 1
            self._example = match[0]
        if self._rows == ROWS_TO_JUDGE:
            self.look_back()

    def look_back(self) -> None:
        """Warn if many rows so far have entities."""
        rows = min(self._rows, ROWS_TO_JUDGE)
        if self._escaped and self._escaped >= ENTITY_SHARE * rows:
            warn_once(
                f"{self._name}: {self._escaped} of the first {rows} rows contain entities such as "
                f"{self._example}, kept as plain text; set unescape = true in this section of the "
                "recipe to decode them"
            )


class QuotedCells:
    """Warn about quoted cells in a file that is read without quoting."""

    def __init__(self, path: Path, columns: Sequence[int | str]) -> None:
        self._path = path
        self._columns = columns
        self._quoted = [0] * len(columns)
        self._rows = 0

    def look_at(self, row: Sequence[str], line: int) -> None:
        """Record the cells of a row; warn at once about doubled quotation marks."""
        self._rows += 1
        for i, cell in enumerate(row):
            if cell.startswith('"') and _QUOTED.fullmatch(cell):
                self._quoted[i] += 1
                if '""' in cell[1:-1]:
                    self._warn(i, f"such as {cell[:40]} in line {line}")
        if self._rows == ROWS_TO_JUDGE:
            self.look_back()

    def look_back(self) -> None:
        """Warn about columns with nearly all cells quoted so far."""
        for i, count in enumerate(self._quoted):
            if count >= MIN_QUOTED and count >= QUOTED_SHARE * self._rows:
                self._warn(i, f"{count} of the first {self._rows}")

    def _warn(self, i: int, cells: str) -> None:
        if self._quoted[i] < 0:
            return
        warn_once(
            f"{self._path}: column {self._columns[i]!r} has quoted cells ({cells}), and the "
            'quotation marks are kept; to remove them, use kind = "csv" with delimiter = "\\t"'
        )
        self._quoted[i] = -sys.maxsize  # enough of this column
