"""Pairs of any files: tables, two files, documents with translations, folders of them."""

import itertools
import json
import logging
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transduce.data.encoded import Pair
from transduce.data.pairs import ParallelFiles, numbered_pairs
from transduce.data.tables import csv_cells, delimiter_of, open_parquet, tab_cells
from transduce.data.text_files import check_utf_8, read_lines
from transduce.errors import DataError, SettingError, extra_module, first_line, reading
from transduce.examination.corpora import SNIFFED, kind_of_table
from transduce.localise.formats import read_document
from transduce.making.columns import Cells, columns_of
from transduce.support.files import from_json
from transduce.text.languages import canonical, language_of
from transduce.text.tokenizer import mark

logger = logging.getLogger("transduce")

DOCUMENTS = (".tmx", ".po", ".xlf", ".xliff", ".sdlxliff", ".mqxliff", ".ts", ".xcstrings")
"""Suffixes of documents with translations."""
ROWS = 2_000
"""Rows that the columns of a table are recognised by."""
WANTED = (
    "give a table (.tsv, .csv, .jsonl, .parquet, .xlsx, or .txt with tabs), two files of lines, a "
    f"folder, or documents ({', '.join(DOCUMENTS)})"
)


class Collector:
    """Pairs of text and answer in some files, and the facts learnt while they are read.

    columns: of each table, in words.  languages: codes of source and target, empty where neither
    headers nor names of files tell.
    """

    def __init__(
        self,
        files: Sequence[Path],
        language: str = "",
        columns: Sequence[str] = (),
        option: str = "--from",
    ) -> None:
        """language: code of the target language, for documents of several.

        columns: names or numbers of source and target in tables; by default they are recognised.
        option: that names the files.  Raises SettingError for a path that is not there.
        """
        for file in files:
            if not file.exists():
                raise SettingError(f"{option} {file}: no such file or folder")
        self._chosen, self._option = columns, option
        self._files, self._language = files, canonical(language) if language else ""
        self.columns: list[str] = []
        self.languages = ("", self._language)

    def pairs(self) -> Iterator[Pair]:
        """All pairs, streamed.  Raises DataError and SettingError."""
        files = self._files
        if len(files) == 1 and files[0].is_dir():
            yield from self._of_folder(files[0])
        elif len(files) == 2 and not any(map(_is_read_alone, files)):
            yield from self._of_two(*files)
        else:
            for file in files:
                yield from self._of_file(file)

    def _are(self, languages: Sequence[str]) -> None:
        """Keep languages that are not known yet."""
        source, target = (old or new for old, new in zip(self.languages, languages, strict=True))
        self.languages = source, target

    def _of_two(self, source: Path, target: Path) -> Iterator[Pair]:
        self._are([_language_of_file(source), _language_of_file(target)])
        config = ParallelFiles(source=source, target=target)
        return (pair for _, pair in numbered_pairs(config, Path()))

    def _of_folder(self, folder: Path) -> Iterator[Pair]:
        """Pairs of a folder: sub-folders label their text files, else all files are read."""
        files = [p for p in sorted(folder.rglob("*")) if p.is_file() and not p.name.startswith(".")]
        below = Counter(file.parent for file in files)
        labelled = [f for f in files if f.parent.parent == folder and f.suffix == ".txt"]
        if len(labelled) == len(files) and len(below) > 1:
            for file in files:
                yield " ".join(" ".join(read_lines(file)).split()), file.parent.name
            return
        stems: dict[Path, list[Path]] = {}
        for file in files:
            if file.suffix.lower() not in DOCUMENTS and not kind_of_table(file):
                stem = file.with_name(file.name.removesuffix(".gz")).with_suffix("")
                stems.setdefault(stem, []).append(file)
        couples = [couple for couple in stems.values() if len(couple) == 2]
        in_couples = {file for couple in couples for file in couple}
        alone = [file for file in files if file not in in_couples and _is_read_alone(file)]
        if not alone and not couples:
            raise SettingError(
                f"{self._option} {folder}: neither tables, documents ({', '.join(DOCUMENTS)}), "
                "couples such as train.en and train.de, nor text files in a sub-folder for each "
                "label"
            )
        for file in alone:
            yield from self._of_file(file)
        for source, target in couples:
            if self._language and _language_of_file(source) == self._language:
                source, target = target, source
            yield from self._of_two(source, target)

    def _of_file(self, file: Path) -> Iterator[Pair]:
        if file.suffix.lower() not in DOCUMENTS:
            yield from self._of_table(file)
            return
        with reading(file):
            content = file.read_bytes()
        language = self._language or None
        for segment in read_document(str(file), content, target_language=language).segments:
            if segment.state == "translated":
                yield segment.source, segment.target

    def _of_table(self, file: Path) -> Iterator[Pair]:
        rows = _rows(file, self._option)
        first = list(itertools.islice(rows, ROWS))
        columns = columns_of(first, str(file), self._language, self._chosen)
        self.columns.append(f"{file.name}: {columns.named}")
        logger.info("%s", self.columns[-1])
        self._are(columns.languages)
        for row in itertools.chain(first[columns.header :], rows):
            if len(row) <= max(columns[:2]):
                yield "", ""
                continue
            tags = (part for column in columns.tags for part in row[column : column + 1])
            parts = [part.strip() for tag in tags for part in tag.split(";")]
            marks = "".join(mark(part) for part in parts if part and not set(part) & set("<> "))
            yield marks + row[columns.source], row[columns.target]


def _language_of_file(file: Path) -> str:
    """Code of the language that the end of a name tells: "de" for train.de.gz and train.de.txt."""
    parts = file.name.split(".")[1:]
    return next((code for part in reversed(parts) if (code := language_of(part))), "")


def _is_read_alone(file: Path) -> bool:
    """True for a folder, a document, and a table, by its suffix or by tabs in each line."""
    suffix = file.suffix.lower()
    if file.is_dir() or suffix in (*DOCUMENTS, ".xlsx") or kind_of_table(file):
        return True
    if suffix not in ("", ".txt"):
        return False
    lines = list(itertools.islice(read_lines(file, lenient=True), SNIFFED))
    return all("\t" in line for line in lines if line.strip())


def _rows(file: Path, option: str) -> Iterator[Cells]:
    """Cells of a table, by its contents rather than its suffix.

    option: of the table, for messages.  Raises DataError, and SettingError for one column alone.
    """
    kind = kind_of_table(file)
    if file.suffix.lower() == ".xlsx":
        return _sheet_rows(file)
    if kind == "parquet":
        return _named_rows(_parquet_objects(file))
    check_utf_8(file)
    first = list(itertools.islice(read_lines(file, lenient=True), SNIFFED))
    filled = [line for line in first if line.strip()]
    if kind == "jsonl" or (filled and all(line.lstrip().startswith("{") for line in filled)):
        return _named_rows(_objects(file))
    delimiter = delimiter_of(first)
    if delimiter is None and kind is None:
        raise SettingError(
            f"{option} {file}: {WANTED}; this one has neither tabs nor other columns"
        )
    delimiter = delimiter or ("\t" if kind == "tsv" else ",")
    quoted = sum(f'{delimiter}"' in f"{delimiter}{line}" for line in first)
    if delimiter == "\t" and 2 * quoted < len(first):
        return (cells for _, cells in tab_cells(file, lenient=True))
    lines = read_lines(file, lenient=True)
    return (cells for _, cells in csv_cells(lines, str(file), delimiter, lenient=True) if cells)


def _sheet_rows(file: Path) -> Iterator[Cells]:
    """Rows of the first sheet of a workbook."""
    openpyxl = extra_module("openpyxl", "reading .xlsx files", "sheets")
    try:
        book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        for row in book.worksheets[0].iter_rows(values_only=True):
            cells = ["" if cell is None else " ".join(str(cell).split()) for cell in row]
            if any(cells):
                yield cells
    except (OSError, ValueError, KeyError, IndexError, zipfile.BadZipFile) as error:
        raise DataError(f"{file} cannot be read as .xlsx: {first_line(error)}") from None


def _parquet_objects(file: Path) -> Iterator[dict[str, str]]:
    with open_parquet(file) as table:
        for batch in table.iter_batches():
            yield from map(_texts_of, batch.to_pylist())


def _named_rows(objects: Iterable[dict[str, str]]) -> Iterator[Cells]:
    """Cells of objects, after the names of the first."""
    names: list[str] = []
    for fields in objects:
        if not names:
            names = list(fields)
            yield names
        yield [fields.get(name, "") for name in names]


def _objects(file: Path) -> Iterator[dict[str, str]]:
    for number, line in enumerate(read_lines(file, lenient=True), 1):
        if line.strip():
            yield _fields(line, f"{file}: line {number}")


def _fields(line: str, location: str) -> dict[str, str]:
    try:
        content = from_json(line)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise DataError(f"{location} is not a JSON object")
    return _texts_of(content)


def _texts_of(content: Mapping[str, Any]) -> dict[str, str]:
    """Texts and numbers of an object, and of objects in it."""
    fields: dict[str, str] = {}
    for name, entry in content.items():
        inner = entry.items() if isinstance(entry, dict) else [(name, entry)]
        for key, text in inner:
            if isinstance(text, str | int | float):
                fields[str(key)] = text if isinstance(text, str) else json.dumps(text)
            elif text is None:
                fields[str(key)] = ""
    return fields
