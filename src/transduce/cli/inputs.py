r"""Inputs of verbs: lines as they arrive, JSON records, tables, and their batches.

Only "\n" ends a line.  Unlike `data.lines`, which refuses invalid UTF-8, this module replaces it
with a warning, to keep an output line per input line.
"""

from __future__ import annotations

import csv
import dataclasses
import difflib
import io
import itertools
import json
import logging
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from transduce.data.tables import TableRecord, csv_cells, no_column, one_a_line
from transduce.data.text_files import PACKINGS, available_lines, is_plain, lenient_text, warn_once
from transduce.errors import DataError, RunError, SettingError, reading
from transduce.support.files import SURROGATES, from_json

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions


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


def shown_input(reader: LineReader, quiet: bool = False) -> Iterator[LineBatch]:
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


TAB = "\t"
DELIMITERS = (",", ";", TAB)

JSON_LINES = 3
"""Bytes read to recognise a JSON document."""
_JSON_DOCUMENT = re.compile(
    r'\s*(?:\{\s*\n\s*"[^"\n]*"\s*:|\[\s*(?:\{\s*"[^"\n]*"\s*:|\n\s*[\[{"]))'
)
_JSON_RECORD = re.compile(r'\{\s*"[^"\n]*"\s*:[^\n]*\}\s*(?:\n|$)')


class Inputs(Protocol):
    """Consecutive inputs."""

    first: int
    """Number of the first input, from 0."""
    inputs: list[tuple[str, ...]]
    """Texts of each input."""

    def reject(self, index: int, reason: str) -> None:
        """Mark an input as failed."""


@dataclass
class TextLines:
    """Plain lines, each an input."""

    first: int
    inputs: list[tuple[str, ...]]
    name: str
    error: DataError | None = None

    def reject(self, index: int, reason: str) -> None:
        """End the batch before an invalid input."""
        del self.inputs[index:]
        self.error = DataError(f"{self.name}: line {self.first + index + 1}: {reason}")

    def answered(self, answers: Iterable[str]) -> Iterator[str]:
        """Answers, each on a line."""
        return iter(answers)


def read_lines_of(batch: LineBatch, name: str, parts: tuple[str, ...]) -> TextLines:
    """Inputs of a batch of lines, up to the first invalid line.

    name: input name for messages.  parts: names of the parts of an input.
    """
    texts = TextLines(batch.first, [], name)
    try:
        for number, line in enumerate(batch.lines, batch.first + 1):
            texts.inputs.append(split_input(line, parts, f"{name}: line {number}"))
    except DataError as error:
        texts.error = error
    return texts


def numbered_inputs(
    reader: LineReader, parts: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Parts of each line, with its number for messages.  Raises DataError for an invalid line."""
    for batch in reader:
        for number, line in enumerate(batch.lines, batch.first + 1):
            where = f"{reader.name}: line {number}"
            yield where, split_input(line, parts, where)


def pairs_of_files(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Pairs of the lines of two files.  Raises DataError while reading."""
    from transduce.data.pairs import ParallelFiles, read_pairs

    return read_pairs(ParallelFiles(source=source, target=target), Path())


def split_input(line: str, names: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Split a line at tabs into the parts of an input; the last part may contain tabs.

    where: of the line, for messages.  Raises DataError for a line with too few parts.
    """
    parts = tuple(line.split(TAB, len(names) - 1))
    if len(parts) < len(names) and line.strip():
        raise DataError(f"{where}: expected tab-separated {' and '.join(names)}, got {line[:40]!r}")
    return parts if len(parts) == len(names) else ("",) * len(names)


@dataclass
class TableRows:
    """Rows of a table, returned with their answers in an added column."""

    first: int
    inputs: list[tuple[str, ...]]
    rows: list[list[str]]
    numbers: list[int]
    """First line number of each row, from 1."""
    name: str
    delimiter: str
    header: list[str] | None = None
    """Column names including the added column, before the first rows."""
    error: DataError | None = None

    def reject(self, index: int, reason: str) -> None:
        """End the batch before an invalid row."""
        self.error = DataError(f"{self.name}: line {self.numbers[index]}: {reason}")
        del self.inputs[index:], self.rows[index:], self.numbers[index:]

    def answered(self, answers: Iterable[str]) -> Iterator[str]:
        """Lines of the table: the header, before the first rows, and each row with its answer."""
        if self.header is not None:
            yield self._line(self.header)
        for row, answer in zip(self.rows, answers, strict=True):
            yield self._line([*row, answer]) if row else ""

    def _line(self, cells: Sequence[str]) -> str:
        if self.delimiter == TAB:
            return TAB.join([*cells[:-1], cells[-1].replace(TAB, " ")])
        file = io.StringIO()
        # The writer quotes the characters of its line terminator; lines are ended elsewhere.
        csv.writer(file, delimiter=self.delimiter, lineterminator="\r\n").writerow(cells)
        return file.getvalue().removesuffix("\r\n")


class InputTable:
    """CSV or TSV file with a header row, read incrementally.

    Tab-separated values have no quoting; commas and semicolons use CSV quoting.
    """

    def __init__(self, name: str, columns: tuple[str, ...], answer: str) -> None:
        """name: input name.  columns: text columns.  answer: column to add."""
        self._name = name
        self._columns = columns
        self._answer = answer

    def read(self, batches: Iterator[LineBatch]) -> Iterator[TableRows]:
        """Batches of the rows available, the header with the first.

        Raises DataError for a missing column, and SettingError if the added column exists.
        """
        left: deque[str] = deque()

        def lines() -> Iterator[str]:
            for batch in batches:
                left.extend(batch.lines)
                while left:
                    yield left.popleft()

        every = lines()
        header = next(every, None)
        if header is None:
            raise DataError(f"{self._name} is empty; expected a header row with column names")
        delimiter, names = self._names(header)
        indices = [names.index(column) for column in self._columns]
        cells = self._cells(every, header, delimiter)
        next(cells)
        header_row: list[str] | None = [*names, self._answer]
        done, ended = 0, False
        while not ended:
            table = TableRows(done, [], [], [], self._name, delimiter, header_row)
            try:
                while left or not table.rows:
                    if (row := next(cells, None)) is None:
                        ended = True
                        break
                    table.numbers.append(row[0])
                    table.rows.append(row[1])
                    table.inputs.append(tuple(row[1][i] if row[1] else "" for i in indices))
            except DataError as error:
                table.error, ended = error, True
            if table.rows or table.header is not None or table.error is not None:
                yield table
            done, header_row = done + len(table.rows), None

    def _cells(
        self, lines: Iterator[str], header: str, delimiter: str
    ) -> Iterator[tuple[int, list[str]]]:
        """Header and rows with their line numbers; a blank TSV line is an empty row."""
        if delimiter != TAB:
            yield from csv_cells(itertools.chain([header], lines), self._name, delimiter)
            return
        width = header.count(TAB) + 1
        yield 1, header.split(TAB)
        for number, line in enumerate(lines, 2):
            row = line.split(TAB) if line else []
            if row and len(row) != width:
                raise DataError(
                    f"{self._name}: line {number} has {len(row)} columns, but line 1 has {width}"
                )
            yield number, row

    def _names(self, header: str) -> tuple[str, list[str]]:
        """Delimiter and column names: the delimiter that yields the requested columns."""
        choices = (TAB,) if is_named(self._name, ".tsv", ".tab") else DELIMITERS
        known: dict[str, list[str]] = {}
        for delimiter in choices:
            try:
                _, known[delimiter] = next(self._cells(iter(()), header, delimiter))
            except (DataError, StopIteration):
                continue
        for delimiter, names in known.items():
            if self._answer in names:
                raise SettingError(
                    f"{self._name} already has a column {self._answer!r}; rename it first"
                )
            if all(column in names for column in self._columns):
                return delimiter, names
        names = max(known.values(), key=len, default=[header])
        missing = next(column for column in self._columns if column not in names)
        hint = "; for JSON records, add --jsonl" if header.lstrip().startswith("{") else ""
        raise DataError(no_column(f"{self._name}: line 1", missing, names) + hint)


def input_columns(columns: Sequence[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Column of each part of an input.  Raises SettingError if their numbers differ."""
    if len(columns) != len(names):
        raise SettingError(
            f"--column must be given once for each part of the input ({', '.join(names)}), got "
            f"{len(columns)}"
        )
    return tuple(columns)


def texts_of_lines(batches: Iterable[LineBatch], name: str) -> Iterator[LineBatch]:
    """The batches of plain lines, with a warning for a table or JSON records.

    Raises DataError for a JSON document of several lines.
    """
    if is_named(name, ".csv"):
        logger.warning(
            "%s: reading each line as plain text; use --column NAME for a column of a table", name
        )
    for batch in batches:
        if batch.first == 0:
            _check_json("\n".join(batch.lines[:JSON_LINES]), name)
        yield batch


def _check_json(head: str, name: str) -> None:
    if _JSON_DOCUMENT.match(head):
        raise DataError(
            f"{name} is a JSON document, not lines of text; write it as one object a line, for "
            "example with `jq -c '.[]'`, and read that with --jsonl"
        )
    if is_named(name, ".jsonl", ".ndjson") or _JSON_RECORD.match(head):
        logger.warning("%s: reading each line as plain text; use --jsonl for JSON records", name)


def is_named(name: str, *suffixes: str) -> bool:
    """Return True for a file, plain or compressed, with any of these suffixes."""
    path = PurePosixPath(name.lower())
    if path.suffix in {packing.suffix for packing in PACKINGS}:
        path = path.with_suffix("")
    return path.suffix in suffixes


ERROR = "error"
"""Field of a record without an answer."""
SIMILAR = 0.85
"""Similarity of a field to the setting that it may be meant for: a letter or two."""


@dataclass
class Records:
    """Records of consecutive lines."""

    first: int
    """Number of the first line, from 0."""
    items: list[dict[str, Any] | None]
    """None for a blank line, without fields for a line that is not a record."""
    inputs: list[tuple[str, ...]]
    """Texts of each record, empty for blank and failed records."""
    errors: dict[int, str]
    """Errors of failed records, by index."""

    def reject(self, index: int, reason: str) -> None:
        """Mark a record as failed; the others are answered nevertheless."""
        self.errors[index] = reason
        self.inputs[index] = ("",) * len(self.inputs[index])

    def answered(self, answers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Each record as a line, with the fields of its answer, or its error, added."""
        for index, (record, fields) in enumerate(zip(self.items, answers, strict=True)):
            if record is None:
                yield ""
                continue
            record.update(fields if index not in self.errors else {ERROR: self._error(index)})
            line = json.dumps(record, ensure_ascii=False)
            yield json.dumps(record) if SURROGATES.search(line) else line

    def _error(self, index: int) -> str:
        """Error of a record, with its line number if it has no fields to identify it by."""
        number = "" if self.items[index] else f"line {self.first + index + 1}: "
        return f"{number}{self.errors[index]}"


def read_records(
    batches: Iterable[LineBatch], fields: tuple[str, ...], name: str
) -> Iterator[Records]:
    """Records of batches of lines, with warnings of failed records after their answers.

    fields: as in `records_of`.  name: input name for messages.
    """
    failed = 0
    for batch in batches:
        records = records_of(batch, fields)
        yield records
        if records.errors and not failed:
            index, reason = min(records.errors.items())
            line = f"{name}: line {records.first + index + 1}: {reason}"
            logger.warning('%s; the record is returned with a field "%s"', line, ERROR)
        failed += len(records.errors)
    if failed > 1:
        logger.warning('%s: %d records failed; each has a field "%s"', name, failed, ERROR)


def records_of(batch: LineBatch, fields: tuple[str, ...]) -> Records:
    """Records of a batch of lines, without the errors of an earlier pass.

    fields: text fields, dotted for nested objects; a record that lacks any, and a line that is no
    record, have errors.
    """
    records = Records(batch.first, [], [], {})
    reads_errors = ERROR in {field.partition(".")[0] for field in fields}
    for index, line in enumerate(batch.lines):
        records.inputs.append(("",) * len(fields))
        if not line.strip():
            records.items.append(None)
            continue
        record: dict[str, Any] = {}
        try:
            record = _record(line, fields)
            records.inputs[index] = tuple(_text(record, field) for field in fields)
        except DataError as error:
            records.reject(index, str(error))
        if not reads_errors:
            record.pop(ERROR, None)
        records.items.append(record)
    return records


def with_options(
    records: Records,
    name: str,
    base: DecodingOptions,
    check: Callable[[DecodingOptions], None],
) -> list[DecodingOptions]:
    """Decoding options of each record: `base`, overridden by fields named after settings.

    A record with invalid options gets an error.  name: input name for messages.  check: further
    validation of options.
    """
    from transduce.decoding.options import DecodingOptions

    names = {field.name for field in dataclasses.fields(DecodingOptions)}
    each: list[DecodingOptions] = []
    for index, record in enumerate(records.items):
        settings = {key: value for key, value in (record or {}).items() if key in names}
        for key in record or {}:
            if key not in names:
                _warn_if_misspelt(key, names, name)
        try:
            options = base.with_settings(settings) if settings else base
            check(options)
        except (SettingError, RunError) as error:
            records.reject(index, str(error))
            options = base
        each.append(options)
    return each


def _warn_if_misspelt(field: str, settings: Iterable[str], name: str) -> None:
    spelled = field.lower().replace("-", "_")
    for near in difflib.get_close_matches(spelled, settings, 1, SIMILAR):
        warn_once(
            f'{name}: field "{field}" is not a decoding setting and has no effect; did you mean '
            f'"{near}"?'
        )


def _record(line: str, fields: tuple[str, ...]) -> dict[str, Any]:
    example = "{" + ", ".join(f'"{field}": "..."' for field in fields) + "}"
    remedy = one_a_line(line) or f"; expected {example}"
    try:
        record = from_json(line)
        json.dumps(record, allow_nan=False)  # Python accepts NaN and 1e999, JSON does not
    except ValueError as error:
        reason = getattr(error, "msg", str(error))
        raise DataError(f"not valid JSON ({reason}){remedy}") from None
    if not isinstance(record, dict):
        raise DataError(f"not a JSON object{remedy}")
    return record


def _text(record: Mapping[str, Any], field: str) -> str:
    value = TableRecord("the record", record).value(field)
    if not isinstance(value, str):
        raise DataError(f'"{field}": expected a string, got {json.dumps(value)[:40]}')
    # JSON may contain lone surrogates, "\ud800", which no tokenizer accepts.
    return SURROGATES.sub("\ufffd", value)
