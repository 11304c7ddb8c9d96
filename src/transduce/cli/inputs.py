"""Inputs of `predict` and `translate` in batches: lines of text, JSON records, rows of a table."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from transduce.cli.lines import LineBatch
from transduce.data.delimited import csv_cells
from transduce.data.formats import PACKINGS
from transduce.data.tables import no_column
from transduce.errors import DataError, SettingError

logger = logging.getLogger("transduce")

TAB = "\t"
DELIMITERS = (",", ";", TAB)

JSON_LINES = 3
"""Enough to know a JSON document by."""
_JSON_DOCUMENT = re.compile(
    r'\s*(?:\{\s*\n\s*"[^"\n]*"\s*:|\[\s*(?:\{\s*"[^"\n]*"\s*:|\n\s*[\[{"]))'
)
_JSON_RECORD = re.compile(r'\{\s*"[^"\n]*"\s*:[^\n]*\}\s*(?:\n|$)')


class Inputs(Protocol):
    """Some inputs in a row, and what is wrong with the one after them."""

    first: int
    """Number of the first one, from 0."""
    inputs: list[tuple[str, ...]]
    """The texts of each."""
    error: DataError | None
    """What is wrong with the input after them, if they had to end there."""

    def reject(self, place: int, reason: str) -> None:
        """Take an input, by its place, for one that has no answer."""


@dataclass
class TextLines:
    """Lines that are inputs as they stand."""

    first: int
    inputs: list[tuple[str, ...]]
    name: str
    error: DataError | None = None

    def reject(self, place: int, reason: str) -> None:
        """End before an input that cannot be answered."""
        del self.inputs[place:]
        self.error = DataError(f"{self.name}: line {self.first + place + 1}: {reason}")

    def answered(self, answers: Iterable[str]) -> Iterator[str]:
        """The answers, one a line."""
        return iter(answers)


def read_lines_of(batch: LineBatch, name: str, parts: tuple[str, ...]) -> TextLines:
    """The inputs of a batch of lines, up to the first line that is none.

    name: the input's, for messages.  parts: what an input is made of.
    """
    found = TextLines(batch.first, [], name)
    for number, line in enumerate(batch.lines, batch.first + 1):
        try:
            found.inputs.append(split_input(line, parts, f"{name}: line {number}"))
        except DataError as error:
            found.error = error
            break
    return found


def split_input(line: str, names: tuple[str, ...], place: str) -> tuple[str, ...]:
    """The parts of an input that a line holds between tabs; the last one may hold tabs.

    Raises DataError naming the place of a line with too few.
    """
    parts = tuple(line.split(TAB, len(names) - 1))
    if len(parts) < len(names) and line.strip():
        raise DataError(
            f"{place} needs {' and '.join(names)} with a tab between, not {line[:40]!r}"
        )
    return parts if len(parts) == len(names) else ("",) * len(names)


@dataclass
class TableRows:
    """Rows of a table, which come back with their answers in a further column."""

    first: int
    inputs: list[tuple[str, ...]]
    rows: list[list[str]]
    numbers: list[int]
    """Of the line where each row begins, from 1."""
    name: str
    delimiter: str
    header: list[str] | None = None
    """Names of the columns, the new one among them, before the first rows."""
    error: DataError | None = None

    def reject(self, place: int, reason: str) -> None:
        """End before a row that cannot be answered."""
        self.error = DataError(f"{self.name}: line {self.numbers[place]}: {reason}")
        del self.inputs[place:], self.rows[place:], self.numbers[place:]

    def answered(self, answers: Iterable[str]) -> Iterator[str]:
        """The header, where it is due, and each row with its answer, as lines of the table."""
        if self.header is not None:
            yield self._line(self.header)
        for row, answer in zip(self.rows, answers, strict=True):
            yield self._line([*row, answer]) if row else ""

    def _line(self, cells: Sequence[str]) -> str:
        if self.delimiter == TAB:
            return TAB.join([*cells[:-1], cells[-1].replace(TAB, " ")])
        file = io.StringIO()
        # The writer quotes the signs of its line end, which each line is given elsewhere.
        csv.writer(file, delimiter=self.delimiter, lineterminator="\r\n").writerow(cells)
        return file.getvalue().removesuffix("\r\n")


class Table:
    """A CSV or TSV file whose first line names its columns, read as it comes.

    Tabs separate without quoting, commas and semicolons with quoting as in CSV.
    """

    def __init__(self, name: str, columns: tuple[str, ...], answer: str) -> None:
        """name: the input's.  columns: those of the texts.  answer: the new one."""
        self._name = name
        self._columns = columns
        self._answer = answer

    def read(self, batches: Iterator[LineBatch]) -> Iterator[TableRows]:
        """Whatever rows are there, the header with the first of them.

        Raises DataError for a missing column, and SettingError where the new one is there already.
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
            raise DataError(f"{self._name} is empty; its first line names the columns")
        delimiter, names = self._names(header)
        indices = [names.index(column) for column in self._columns]
        cells = self._cells(every, header, delimiter)
        next(cells)
        header_row: list[str] | None = [*names, self._answer]
        done, ended = 0, False
        while not ended:
            found = TableRows(done, [], [], [], self._name, delimiter, header_row)
            try:
                while left or not found.rows:
                    if (row := next(cells, None)) is None:
                        ended = True
                        break
                    found.numbers.append(row[0])
                    found.rows.append(row[1])
                    found.inputs.append(tuple(row[1][i] if row[1] else "" for i in indices))
            except DataError as error:
                found.error, ended = error, True
            if found.rows or found.header is not None or found.error is not None:
                yield found
            done, header_row = done + len(found.rows), None

    def _cells(
        self, lines: Iterator[str], header: str, delimiter: str
    ) -> Iterator[tuple[int, list[str]]]:
        """The header and all rows, with their lines' numbers; a blank row of TSV is empty."""
        if delimiter != TAB:
            yield from csv_cells(_after(header, lines), self._name, delimiter)
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
        """What separates columns, and their names: the delimiter by which those asked are there."""
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
                    f"{self._name} has a column {self._answer!r} already; rename it first"
                )
            if all(column in names for column in self._columns):
                return delimiter, names
        names = max(known.values(), key=len, default=[header])
        missing = next(column for column in self._columns if column not in names)
        hint = "; JSON records need --jsonl" if header.lstrip().startswith("{") else ""
        raise DataError(no_column(f"{self._name}: line 1", missing, names) + hint)


def columns_of(given: Sequence[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of the parts of an input.  Raises SettingError unless there is one for each."""
    if len(given) != len(names):
        raise SettingError(
            f"an input of this run is {' and '.join(names)}; give --column once for each, in this "
            "order"
        )
    return tuple(given)


def texts_of_lines(batches: Iterable[LineBatch], name: str) -> Iterator[LineBatch]:
    """The batches, whose lines are texts, with a warning for a table or for JSON records.

    Raises DataError for a JSON document of several lines.
    """
    if is_named(name, ".csv"):
        logger.warning("%s: each line is read as a text; --column NAME reads that column", name)
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
        logger.warning("%s: each line is read as a text; --jsonl reads records", name)


def is_named(name: str, *suffixes: str) -> bool:
    """Whether a file, plain or compressed, has one of these suffixes."""
    path = PurePosixPath(name.lower())
    if path.suffix in {packing.suffix for packing in PACKINGS}:
        path = path.with_suffix("")
    return path.suffix in suffixes


def _after(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest
