"""Batches of inputs for `predict` and `translate`: text lines and table rows."""

from __future__ import annotations

import csv
import io
import itertools
import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from transduce.cli.lines import LineBatch, LineReader
from transduce.data.delimited import csv_cells
from transduce.data.formats import PACKINGS
from transduce.data.tables import no_column
from transduce.errors import DataError, SettingError

logger = logging.getLogger("transduce")

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


class Table:
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


def columns_of(columns: Sequence[str], names: tuple[str, ...]) -> tuple[str, ...]:
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
