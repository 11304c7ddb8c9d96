"""Documents: single texts, such as books, articles or lines of a log, and their lines as packed
or paired rows.

They are kept exactly as they are, including line ends and spaces, for language modelling.  On disk
each is a row of ids between BOS and EOS (see `data.ragged_rows`):

    DIRECTORY/
        documents.tokens, documents.offsets
        manifest.json
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from transduce.data.ragged_rows import (
    NOTHING,
    Encode,
    ResumableDirectory,
    RowWriter,
    Side,
    Written,
    map_rows,
    read_manifest,
    resume_or_create,
    write_manifest,
)
from transduce.data.sources import Files, HubData, JsonLinesFile, ParquetFile
from transduce.data.text_files import read_lines, read_whole_lines
from transduce.data.workers import in_workers
from transduce.errors import DataError
from transduce.settings.sections import ByKind, section
from transduce.support.work import chunks
from transduce.text.tokenizer import BOS, EOS

T = TypeVar("T")

DOCUMENT_VERSION = 2
DOCUMENT_FILES = ("documents.tokens", "documents.offsets")
CHUNK_CHARACTERS = 1 << 20
DOCUMENT_CHUNKS_KEPT = 20
"""Chunks between two resume points, and the most lost if the process is killed."""


@section
class TextFiles(Files):
    """Text files, plain or compressed."""

    kind: Literal["text"] = "text"
    documents: Literal["file", "line", "blank-line"] = "file"
    """End of a document: end of file, end of line, or blank lines."""


@section
class TextColumn:
    """Base of sections of texts in tables."""

    text: str = "text"
    """Column of the text; `page.text` goes into nested columns."""


@section
class JsonLinesTexts(TextColumn, JsonLinesFile):
    """A file with one JSON object per line, plain or compressed."""


@section
class ParquetTexts(TextColumn, ParquetFile):
    """A Parquet file (needs the extra `parquet`)."""


@section
class HubTexts(TextColumn, HubData):
    """A data set of the `datasets` library (needs the extra `hub`)."""


DocumentsConfig = Annotated[TextFiles | JsonLinesTexts | ParquetTexts | HubTexts, ByKind()]
"""Source of documents, selected by `kind`."""


class NoDocumentsError(DataError):
    """The documents contain no text."""


def read_documents(config: DocumentsConfig, root: Path) -> Iterator[str]:
    """Stream the documents of a section.  Raises DataError for unreadable input."""
    if isinstance(config, TextFiles):
        for path in config.files(root):
            yield from _documents_of(path, config.documents)
    else:
        yield from (text for (text,) in config.rows(root, (config.text,)))


def _documents_of(path: Path, documents: Literal["file", "line", "blank-line"]) -> Iterator[str]:
    match documents:
        case "file":
            yield "".join(read_whole_lines(path))
        case "line":
            yield from (line for line in read_lines(path) if line.strip())
        case "blank-line":
            lines: list[str] = []
            for line in read_whole_lines(path):
                if line.strip():
                    lines.append(line)
                elif lines:
                    yield _without_last_end(lines)
                    lines = []
            if lines:
                yield _without_last_end(lines)


def _without_last_end(lines: list[str]) -> str:
    return "".join(lines).removesuffix("\n").removesuffix("\r")


class EncodedDocuments:
    """Documents as token ids, each between BOS and EOS.

    tokens:  (k,) ids of all documents, concatenated.
    offsets: (n + 1,) document i is tokens offsets[i] to offsets[i + 1].
    n_bytes: UTF-8 bytes of the original texts.
    """

    def __init__(self, tokens: NDArray[Any], offsets: NDArray[np.int64], n_bytes: int) -> None:
        self.tokens = tokens
        self.offsets = offsets
        self.n_bytes = n_bytes

    @staticmethod
    def open(directory: Path, fingerprint: str) -> EncodedDocuments | None:
        """Open the documents; None if absent, incomplete, or with another fingerprint."""
        manifest = read_manifest(directory, fingerprint, DOCUMENT_VERSION, DOCUMENT_FILES)
        try:
            if manifest is None:
                return None
            tokens, offsets = map_rows(directory, "documents", manifest["dtype"])
            return EncodedDocuments(tokens, offsets, manifest["bytes"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def of_rows(rows: Iterable[Sequence[int]], n_bytes: int = 0) -> EncodedDocuments:
        """Documents in memory, from the ids of each."""
        ids, ends = array("i"), array("q", [0])
        for row in rows:
            ids.extend(row)
            ends.append(len(ids))
        return EncodedDocuments(np.array(ids), np.array(ends, np.int64), n_bytes)

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True)
class Coding(Generic[T]):
    """Encoder from documents to rows of ids; can be pickled.

    encode: maps documents to ids, marks included, for each that is not empty, and to the UTF-8
    bytes of the learned text.  text: of a document.  vocabulary: as in `PackedBatches`.  facts:
    settings of the encoder, as JSON values.
    """

    side: Side
    encode: Callable[[Sequence[T]], tuple[list[list[int]], int]]
    text: Callable[[T], str]
    vocabulary: int | None = None
    facts: Sequence[Any] = ()


def coding_of_texts(side: Side) -> Coding[str]:
    """Each text between BOS and EOS."""
    return Coding(side, functools.partial(_encode, encode=side.encode), str)


def cached_documents(
    documents: Callable[[], Iterable[T]],
    coding: Coding[T],
    directory: Path,
    fingerprint: str,
    progress: Callable[[int], None] | None = None,
    processes: int = 1,
) -> EncodedDocuments:
    """Open encoded documents, or encode them now; `documents` is called only if needed.

    fingerprint: identifies the inputs and the coding.  progress: called now and then with the
    number of documents read.  processes: they change no byte of the result, even after a killed
    process was resumed.  Raises NoDocumentsError if there is no text, DataError if the directory
    cannot be written.
    """
    existing = EncodedDocuments.open(directory, fingerprint)
    if existing is not None:
        return existing
    with resume_or_create(directory, DOCUMENT_FILES, fingerprint, DOCUMENT_VERSION) as unfinished:
        if unfinished is not None:
            facts = _write_document(unfinished, documents, coding, progress, processes)
            write_manifest(unfinished.path, fingerprint, DOCUMENT_VERSION, DOCUMENT_FILES, facts)
    encoded = EncodedDocuments.open(directory, fingerprint)
    assert encoded is not None, directory
    return encoded


def _write_document(
    unfinished: ResumableDirectory,
    documents: Callable[[], Iterable[T]],
    coding: Coding[T],
    progress: Callable[[int], None] | None,
    processes: int,
) -> dict[str, Any]:
    work = functools.partial(_encode_document_chunk, coding=coding)
    done = unfinished.progress
    n_read, n_bytes = done.get("read", 0), done.get("bytes", 0)
    written = Written(*done.get("documents", NOTHING))
    with RowWriter(unfinished.path, "documents", coding.side.dtype, written) as writer:
        rest = itertools.islice(documents(), n_read, None)
        with contextlib.closing(in_workers(work, _chunks(rest, coding), processes)) as chunks:
            for number, chunk in enumerate(chunks, 1):
                writer.append(chunk.ids, chunk.lengths)
                n_read, n_bytes = n_read + chunk.read, n_bytes + chunk.n_bytes
                if number % DOCUMENT_CHUNKS_KEPT == 0:
                    writer.to_disk()
                    facts = {"read": n_read, "bytes": n_bytes, "documents": writer.written}
                    unfinished.keep(facts)
                if progress is not None:
                    progress(n_read)
    count = writer.written.rows
    if not count:
        raise NoDocumentsError("the documents contain no text")
    return {"documents": count, "bytes": n_bytes, "dtype": coding.side.dtype}


class _DocumentChunk(NamedTuple):
    """Some encoded documents: number read, UTF-8 bytes learned, ids of all rows and their lengths
    (n,)."""

    read: int
    n_bytes: int
    ids: NDArray[Any]
    lengths: NDArray[np.int64]


def _encode_document_chunk(documents: list[T], coding: Coding[T]) -> _DocumentChunk:
    rows, n_bytes = coding.encode(documents)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return _DocumentChunk(len(documents), n_bytes, coding.side.ids_of(rows, lengths), lengths)


def _chunks(documents: Iterable[T], coding: Coding[T]) -> Iterator[list[T]]:
    chunk: list[T] = []
    size = 0
    for document in documents:
        chunk.append(document)
        size += len(coding.text(document))
        if size >= CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _encode(texts: Sequence[str], encode: Encode) -> tuple[list[list[int]], int]:
    """Ids of each text with tokens, between its marks, and the bytes of these texts."""
    rows, n_bytes = [], 0
    for text, ids in zip(texts, encode(texts), strict=True):
        if ids:
            rows.append([BOS, *ids, EOS])
            n_bytes += len(text.encode("utf-8", "surrogatepass"))
    return rows, n_bytes


READ_TOGETHER = 256
"""Documents tokenised together."""


class EncodedLines:
    """Lines of documents as token ids in memory.

    tokens:    (k,) ids of all lines.
    offsets:   (n + 1,) line i is tokens offsets[i] to offsets[i + 1]; no line is empty.
    documents: (n,) document number of each line, never falling.
    """

    def __init__(
        self,
        texts: Iterable[str],
        encode: Callable[[Sequence[str]], list[list[int]]],
        max_length: int,
    ) -> None:
        """texts: documents.  max_length: maximum tokens of a line; longer lines are split."""
        tokens, ends, documents = array("i"), array("q", [0]), array("q")
        for chunk in chunks(enumerate(texts), READ_TOGETHER):
            lines = [(i, line) for i, text in chunk for line in text.split("\n") if line.strip()]
            rows = encode([line.removesuffix("\r") for _, line in lines])
            for (i, _), ids in zip(lines, rows, strict=True):
                for begin in range(0, len(ids), max_length):
                    tokens.extend(ids[begin : begin + max_length])
                    ends.append(len(tokens))
                    documents.append(i)
        self.tokens = np.frombuffer(tokens, np.int32)
        self.offsets = np.frombuffer(ends, np.int64)
        self.documents = np.frombuffer(documents, np.int64)

    def __len__(self) -> int:
        return len(self.documents)

    def line(self, i: int) -> NDArray[np.int32]:
        """The ids of a line."""
        return self.tokens[self.offsets[i] : self.offsets[i + 1]]

    def packed(self, max_length: int) -> NDArray[np.int64]:
        """(r, 2) first line and end of rows of lines of a document, as many as
        fit."""
        rows: list[tuple[int, int]] = []
        begin = 0
        for i in range(1, len(self) + 1):
            ends = i == len(self) or self.documents[i] != self.documents[begin]
            if ends or self.offsets[i + 1] - self.offsets[begin] > max_length:
                rows.append((begin, i))
                begin = i
        return np.array(rows, np.int64).reshape(-1, 2)

    def pairs(self) -> NDArray[np.int64]:
        """(p,) lines followed by another line of the same document."""
        return np.flatnonzero(self.documents[:-1] == self.documents[1:])

    def elsewhere(self, line: int, chance: float) -> int:
        """A line of another document than `line`, uniform for a `chance` uniform in [0, 1)."""
        document = self.documents[line]
        first = int(np.searchsorted(self.documents, document))
        end = int(np.searchsorted(self.documents, document, side="right"))
        i = int(chance * (len(self) - (end - first)))
        return i if i < first else i + end - first

    @property
    def n_documents(self) -> int:
        """Number of documents with lines."""
        return len(np.unique(self.documents))


def lengths_of(lines: EncodedLines, rows: NDArray[Any]) -> NDArray[np.int64]:
    """(r,) tokens of each row from `EncodedLines.packed`."""
    lengths: NDArray[np.int64] = lines.offsets[rows[:, 1]] - lines.offsets[rows[:, 0]]
    return lengths
