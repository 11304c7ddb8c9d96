"""Read rows of delimited tables: TSV without quoting, CSV with quoting."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from transduce.data.escaped_text import QuotedCells
from transduce.data.lines import read_lines
from transduce.data.tables import no_column
from transduce.errors import DataError, SettingError
from transduce.support.limits import LINE_LIMIT


def _delimiter(text: str) -> str:
    if len(text) != 1 or text in '"\r\n':
        raise ValueError(f"{text!r} is not a valid delimiter; use one character other than quotes")
    return text


Column = Annotated[int, Field(ge=0)] | str
Delimiter = Annotated[str, AfterValidator(_delimiter)]


def check_columns(header: bool, columns: Iterable[int | str | None]) -> None:
    """Raises SettingError for column names in a file without a header."""
    for column in columns:
        if isinstance(column, str) and not header:
            raise SettingError(
                f"column {column!r} has no number; header = false needs columns by number, "
                "counted from 0"
            )


def tsv_rows(
    path: Path, columns: Sequence[int | str], lenient: bool = False
) -> Iterator[tuple[str, ...]]:
    """Columns of a tab-separated file, by number from 0, or by name if the first line is a header.

    There is no quoting: every tab and line end separates; cells quoted by a spreadsheet cause a
    warning.  An empty line is a row of empty texts.  lenient: as in `read_lines`.  Raises DataError
    for a missing column.
    """
    lines = enumerate(read_lines(path, lenient), 1)
    names: list[str] = []
    if any(isinstance(column, str) for column in columns):
        names = next(lines)[1].split("\t")
    indices = _indices(path, names, columns, _csv_hint("\t".join(names)))
    last = max(indices)
    quoted = QuotedCells(path, columns)
    for number, line in lines:
        fields = line.split("\t") if line else [""] * (last + 1)
        if last >= len(fields):
            raise DataError(
                f"{path}: line {number} has no column {last}; its tab-separated columns are "
                f"numbered 0 to {len(fields) - 1}{_csv_hint(line)}"
            )
        row = tuple(fields[i] for i in indices)
        quoted.look_at(row, number)
        yield row
    quoted.look_back()


def csv_rows(
    path: Path, columns: Sequence[int | str], delimiter: str = ",", header: bool = True
) -> Iterator[tuple[str, ...]]:
    """Columns of a CSV file, as from `numbered_csv_rows`."""
    return (row for _, row in numbered_csv_rows(path, columns, delimiter, header))


def numbered_csv_rows(
    path: Path,
    columns: Sequence[int | str],
    delimiter: str = ",",
    header: bool = True,
    lenient: bool = False,
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Number of the first line of each row, and its columns, by name or by number from 0.

    Cells are quoted as in RFC 4180: a line end inside quotes belongs to the text; blank lines are
    skipped.  Raises DataError for a missing column, and as `csv_cells` does.
    """
    rows = (row for row in csv_cells(read_lines(path, lenient), str(path), delimiter) if row[1])
    number, names = next(rows, (1, []))
    indices = _indices(path, names if header else [], columns)
    if max(indices) >= len(names):
        raise DataError(
            f"{path}: line {number} has no column {max(indices)}; its columns, separated by "
            f"{delimiter!r}, are numbered 0 to {len(names) - 1}"
        )
    first = [] if header else [(number, names)]
    for number, row in itertools.chain(first, rows):
        yield number, tuple(row[i] for i in indices)


def csv_cells(
    lines: Iterable[str], location: str, delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """Number of the first line of each row, and its cells; blank lines have none.

    lines: read only as far as a row needs.  Raises DataError for invalid CSV, and for a row with
    more or fewer cells than the first.
    """
    csv.field_size_limit(LINE_LIMIT.most() << 20)
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    width, first, number = 0, 1, 1
    try:
        for row in rows:
            if row and not width:
                width, first = len(row), number
            if row and len(row) != width:
                raise DataError(
                    f"{location}: line {number} has {len(row)} columns, but line {first} has "
                    f"{width}; check the delimiter ({delimiter!r}), and quote any text that "
                    "contains it"
                )
            yield number, row
            number = rows.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{location}: line {number} is not valid CSV: {error}; double any quotation mark in "
            "quotes"
        ) from None


def _csv_hint(line: str) -> str:
    """End of a message about a line without tabs that has commas or an open quotation mark."""
    if "\t" not in line and line.startswith('"') and line.count('"') % 2:
        return '; read quoted texts with line ends with kind = "csv" with delimiter = "\\t"'
    return '; read a CSV file with kind = "csv"' if "\t" not in line and "," in line else ""


def _indices(
    path: Path, names: list[str], columns: Sequence[int | str], hint: str = ""
) -> list[int]:
    for column in columns:
        if isinstance(column, str) and column not in names:
            raise DataError(no_column(f"{path}: line 1", column, names) + hint)
    indices = [c if isinstance(c, int) else names.index(c) for c in columns]
    if min(indices) < 0:
        raise DataError(f"{path}: invalid column {min(indices)}; columns are numbered from 0")
    return indices
