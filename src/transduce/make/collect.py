"""Pairs of any files: tables, two files, documents with translations, folders of them."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from transduce.data.delimited import csv_cells
from transduce.data.filters import Pair
from transduce.data.lines import read_lines
from transduce.data.pairs import ParallelFiles, Parquet, numbered_pairs
from transduce.doctor.corpora import kind_of_table
from transduce.errors import DataError, SettingError, reading
from transduce.localise.csv_format import LANGUAGE, SOURCES, TARGETS
from transduce.localise.formats import read_document
from transduce.support.limits import from_json
from transduce.text.characters import mark

DOCUMENTS = (".tmx", ".po", ".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".ts", ".xcstrings")
"""Suffixes of documents with translations."""
HEADERS = (*SOURCES, *TARGETS, "text", "label", "sentence", "word", "class", "category")
ROWS = 2_000
"""Rows that the columns of a table are recognised by."""
MAX_LABELS = 100
_FEATURES = re.compile(r"[A-Z0-9][A-Za-z0-9()+,./:_-]*(;[A-Z0-9][A-Za-z0-9()+,./:_-]*)*")
_CODE = re.compile(r"[a-z]{2,3}([_-][a-z]{2,8})?")

Cells = list[str]


class Columns(NamedTuple):
    """Columns of a table: source, target, and tags before the source; rows of the header."""

    source: int
    target: int
    tags: tuple[int, ...]
    header: int


def collected(files: Sequence[Path], language: str = "") -> Iterator[Pair]:
    """Pairs of text and answer in some files, streamed.

    language: code of the target language, for documents of several.  Raises DataError and
    SettingError.
    """
    for file in files:
        if not file.exists():
            raise SettingError(f"--from {file}: no such file or folder")
    if len(files) == 1 and files[0].is_dir():
        yield from _of_folder(files[0], language)
    elif len(files) == 2 and not any(map(_is_read_alone, files)):
        yield from _of_two(*files)
    else:
        for file in files:
            yield from _of_file(file, language)


def _is_read_alone(file: Path) -> bool:
    return file.is_dir() or file.suffix.lower() in DOCUMENTS or bool(kind_of_table(file))


def _of_two(source: Path, target: Path) -> Iterator[Pair]:
    config = ParallelFiles(source=source, target=target)
    return (pair for _, pair in numbered_pairs(config, Path()))


def _of_folder(folder: Path, language: str) -> Iterator[Pair]:
    """Pairs of a folder: sub-folders are labels of their text files, else all files are read."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.startswith(".")]
    below = Counter(file.parent for file in files)
    labelled = [file for file in files if file.parent.parent == folder and file.suffix == ".txt"]
    if len(labelled) == len(files) and len(below) > 1:
        for file in files:
            yield " ".join(" ".join(read_lines(file)).split()), file.parent.name
        return
    alone = [file for file in files if _is_read_alone(file)]
    stems: dict[Path, list[Path]] = {}
    for file in files:
        if file not in alone:
            stem = file.with_name(file.name.removesuffix(".gz")).with_suffix("")
            stems.setdefault(stem, []).append(file)
    couples = [couple for couple in stems.values() if len(couple) == 2]
    if not alone and not couples:
        raise SettingError(
            f"--from {folder}: neither tables, documents ({', '.join(DOCUMENTS)}), couples such as "
            "train.en and train.de, nor text files in a sub-folder for each label"
        )
    for file in alone:
        yield from _of_file(file, language)
    for source, target in couples:
        if language and source.name.removesuffix(".gz").endswith(f".{language}"):
            source, target = target, source
        yield from _of_two(source, target)


def _of_file(file: Path, language: str) -> Iterator[Pair]:
    kind = kind_of_table(file)
    if file.suffix.lower() in DOCUMENTS:
        with reading(file):
            content = file.read_bytes()
        for segment in read_document(str(file), content, target_language=language or None).segments:
            if segment.state == "translated":
                yield segment.source, segment.target
    elif kind == "parquet":
        yield from (pair for _, pair in numbered_pairs(Parquet(path=file), Path()))
    elif kind is not None:
        yield from _of_table(file, kind, language)
    else:
        raise SettingError(
            f"--from {file}: give a table (.tsv, .csv, .jsonl, .parquet), two files of lines, a "
            f"folder, or documents ({', '.join(DOCUMENTS)})"
        )


def _of_table(file: Path, kind: str, language: str) -> Iterator[Pair]:
    rows = _rows(file, kind)
    first = list(itertools.islice(rows, ROWS))
    columns = columns_of(first, str(file), language)
    for row in itertools.chain(first[columns.header :], rows):
        if len(row) <= max(columns[:2]):
            yield "", ""
            continue
        tags = (part for column in columns.tags for part in row[column : column + 1])
        parts = [part.strip() for tag in tags for part in tag.split(";")]
        marks = "".join(mark(part) for part in parts if part and not set(part) & set("<> "))
        yield marks + row[columns.source], row[columns.target]


def _rows(file: Path, kind: str) -> Iterator[Cells]:
    if kind == "tsv":
        yield from (line.split("\t") for line in read_lines(file, lenient=True))
    elif kind == "csv":
        header = next(read_lines(file, lenient=True), "")
        delimiter = max(",;\t", key=header.count)
        for _, cells in csv_cells(read_lines(file, lenient=True), str(file), delimiter):
            if cells:
                yield cells
    else:
        names: list[str] = []
        for number, line in enumerate(read_lines(file, lenient=True), 1):
            fields = _fields(line, f"{file}: line {number}")
            names = names or list(fields)
            if number == 1:
                yield names
            yield [fields.get(name, "") for name in names]


def _fields(line: str, location: str) -> dict[str, str]:
    """Texts and numbers of an object, and of objects in it."""
    try:
        content = from_json(line)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise DataError(f"{location} is not a JSON object")
    fields: dict[str, str] = {}
    for name, entry in content.items():
        inner = entry.items() if isinstance(entry, dict) else [(name, entry)]
        for key, text in inner:
            if isinstance(text, str | int):
                fields[str(key)] = text if isinstance(text, str) else json.dumps(text)
    return fields


def columns_of(rows: Sequence[Cells], name: str, language: str = "") -> Columns:
    """Columns of source and target: by the header if there is one, else by their contents.

    Raises DataError for a table without two columns of texts, or of texts and labels.
    """
    head = [cell.strip().lower() for cell in rows[0]] if rows else []
    header = int(any(cell in HEADERS for cell in head) or _are_codes(head, rows[1:]))
    named = [_first(head, names) if header else None for names in (SOURCES, TARGETS)]
    if language in head and header:
        named[1] = head.index(language)
    if named[0] is not None and named[1] is not None:
        return Columns(named[0], named[1], (), header)
    width = Counter(map(len, rows[header:])).most_common(1)[0][0] if rows[header:] else 0
    cells = [[row[at] for row in rows[header:] if len(row) == width] for at in range(width)]
    kinds = [_kind_of_column(column) for column in cells]
    texts = [at for at, kind in enumerate(kinds) if kind == "text"]
    labels = [at for at, kind in enumerate(kinds) if kind in ("label", "code")]
    tags = tuple(at for at, kind in enumerate(kinds) if kind in ("features", "code"))
    if len(texts) >= 2:
        source, target = texts[:2]
        if named[1] is not None and named[1] in texts:
            source, target = next(at for at in texts if at != named[1]), named[1]
        return Columns(source, target, tags, header)
    if texts and labels:
        return Columns(texts[0], labels[0], (), header)
    if width == 2:
        return Columns(0, 1, (), header)
    raise DataError(f"{name}: no two columns of texts; name them source and target in a first row")


def _first(head: Sequence[str], names: Iterable[str]) -> int | None:
    return next((at for at, cell in enumerate(head) if cell in names), None)


def _are_codes(head: Sequence[str], rows: Sequence[Cells]) -> bool:
    """True for a header of languages: its cells stand in no other row."""
    codes = len(head) >= 2 and len(set(head)) == len(head) and all(map(LANGUAGE.fullmatch, head))
    return codes and not any(cell in row for row in rows for cell in head)


def are_labels(different: int, count: int) -> bool:
    """True for answers so few, for their count, that they are labels."""
    return different <= min(MAX_LABELS, max(count // 20, 2))


def _kind_of_column(cells: Sequence[str]) -> str:
    """Kind of a column: text, label, features of words, code of a language, or nothing of use."""
    filled = [cell for cell in cells if cell.strip()]
    different = set(filled)
    if len(different) < 2:
        return "constant"
    if all(map(_FEATURES.fullmatch, different)) and sum(";" in cell for cell in filled) * 2 > len(
        filled
    ):
        return "features"
    if are_labels(len(different), len(filled)):
        return "code" if all(map(_CODE.fullmatch, different)) else "label"
    return "number" if all(cell.strip().isdecimal() for cell in filled) else "text"
