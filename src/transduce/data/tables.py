"""Rows of tables with named columns: JSON lines, Parquet, `datasets`, TSV and CSV.

`*_records` stream rows with values of any type; their `texts` are those of columns in the requested
order.  Null counts as the empty text; values that are not text are errors.
"""

import csv
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from transduce.data.text_files import QuotedCells, read_lines, warn_once
from transduce.errors import DataError, SettingError, extra_module, first_line
from transduce.settings.sections import did_you_mean
from transduce.support.files import LINE_LIMIT, SURROGATES, from_json

HUB = "hf://"
BATCH_ROWS = 4096
FEW_WIDE = 0.1
"""Share of lines with too many cells, at most, that are faults and not the form of a table."""
NAMED_LINES = 5
"""Lines that a warning names, at most."""


class TableRecord(NamedTuple):
    """A row of a table with named columns, with values of any type.  location: its name in
    messages.  number: of its line or row, from 1."""

    location: str
    values: Mapping[str, Any]
    number: int = 1

    def value(self, column: str) -> Any:
        """Value of a column; a dotted name reaches into nested objects.

        In a list of texts, a number names an entry from 0, and `*` joins all.  Raises DataError for
        no such column.
        """
        if column in self.values:
            return self.values[column]
        value: Any = self.values
        for key in column.split("."):
            if value is None:
                return None
            value = _with_keys(value)
            if isinstance(value, list) and (key == "*" or key.isdecimal()):
                value = self._item(column, value, key)
                continue
            if not isinstance(value, Mapping) or key not in value:
                known = list(_dotted_names(self.values))
                raise DataError(no_column(self.location, column, known))
            value = value[key]
        return value

    def _item(self, column: str, items: list[Any], key: str) -> Any:
        if key != "*":
            if int(key) < len(items):
                return items[int(key)]
            raise DataError(
                f"{self.location}: {column!r} is missing; the list has {len(items)} items"
            )
        if all(isinstance(item, str) for item in items):
            return " ".join(items)
        raise DataError(f"{self.location}: {column!r} must be a list of texts")

    def text(self, column: str) -> str:
        """Text of a column; null is the empty text.  Raises DataError for other types."""
        value = _with_keys(self.value(column))
        if value is None:
            return ""
        if not isinstance(value, str):
            hint = _hint(column, value)
            raise DataError(
                f"{self.location}: {column!r} must be text, not {type(value).__name__}{hint}"
            )
        check_surrogates(value, column, self.location)
        return value

    def texts(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Texts of several columns, in this order."""
        return tuple(self.text(column) for column in columns)


def check_surrogates(text: str, column: str, location: str) -> None:
    """Raises DataError for half of a character, which UTF-8 cannot hold.

    text: the cell.  column: its name, for the message.  location: file and line, for the message.
    """
    if (half := SURROGATES.search(text)) is not None:
        character = f"character {half.start() + 1} of {column!r}"
        raise DataError(f"{location}: {character} is an unpaired surrogate")


def _with_keys(value: Any) -> Any:
    """Convert a Parquet map, given as pairs, to a dict; other values are unchanged."""
    if isinstance(value, list) and value and all(isinstance(item, tuple) for item in value):
        return dict(value)
    return value


def _hint(column: str, value: Any) -> str:
    """End of a message about a value that is not text: the remedy."""
    if isinstance(value, Mapping) and value:
        return f"; did you mean '{column}.{next(iter(value))}'?"
    if isinstance(value, bytes):
        return "; store strings instead, for example with pandas: df[column].str.decode('utf-8')"
    if isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            return f"; name one text of the list, '{column}.0', or all of them, '{column}.*'"
        return "; store one text in each row, for example with pandas: df.explode(column)"
    if isinstance(value, bool | int | float):
        return "; store the column as strings, or use another column"
    return ""


def json_records(path: Path) -> Iterator[TableRecord]:
    """Objects of a JSON lines file.  Raises DataError naming a malformed line."""
    for number, line in enumerate(read_lines(path), 1):
        if line.strip():
            yield _json_record(path, number, line)


def _json_record(path: Path, number: int, line: str) -> TableRecord:
    location = f"{path}: line {number}"
    try:
        record = from_json(line)
    except ValueError as error:
        raise DataError(f"{location} is not valid JSON: {error}{one_a_line(line)}") from None
    if not isinstance(record, dict):
        raise DataError(f"{location} is not a JSON object{one_a_line(line)}")
    return TableRecord(location, record, number)


def numbered_json_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Number of each line with text, and its columns; of a lenient reader (`IncompleteRows`)."""
    incomplete, sound = IncompleteRows(lenient=True), 0
    for number, line in enumerate(read_lines(path, lenient=True), 1):
        if not line.strip():
            continue
        try:
            texts = _json_record(path, number, line).texts(columns)
            sound += 1
        except DataError as error:
            incomplete.add(number, str(error))
            texts = ("",) * len(columns)
        yield number, texts
    incomplete.look_back(sound)


def one_a_line(line: str) -> str:
    """End of a message about a line of JSON that is part of a longer array or record."""
    begins = line.strip()
    if begins.startswith("["):
        return "; convert a JSON array to one object per line with `jq -c '.[]' FILE`"
    if begins == "{":
        return "; convert multi-line records to one object per line with `jq -c . FILE`"
    return ""


def parquet_records(
    path: Path, columns: Iterable[str], together: int = BATCH_ROWS
) -> Iterator[TableRecord]:
    """Rows of a Parquet file with these columns only; a dotted name is a nested column or key of a
    map.

    together: rows read at a time.  Raises DataError for a missing column, and as `open_parquet`.
    """
    with open_parquet(path) as file:
        pyarrow = extra_module("pyarrow", "reading this data", "parquet")
        known = dict(_schema_fields(pyarrow, file.schema_arrow))
        maps = [name for name, kind in known.items() if pyarrow.types.is_map(kind)]
        lists = [name for name, kind in known.items() if pyarrow.types.is_list(kind)]
        whole = (*maps, *lists)
        asked = dict.fromkeys(
            next((w for w in whole if column not in known and column.startswith(f"{w}.")), column)
            for column in columns
        )
        for column in asked:
            if column not in known and column not in file.schema_arrow.names:
                hint = (
                    f"; {maps[0]!r} is a map: name a key of it, as '{maps[0]}.en'" if maps else ""
                )
                raise DataError(no_column(path, column, list(known)) + hint)
        number = 0
        for batch in file.iter_batches(batch_size=together, columns=list(asked)):
            for row in batch.to_pylist():
                number += 1
                yield TableRecord(f"{path}: row {number}", row, number)


def encoded_file(cell: Any, directory: Path) -> Path | bytes | None:
    """Path or bytes of an image or recording in a cell, or in the struct that `datasets` writes."""
    if isinstance(cell, Mapping):
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, str):
        return directory / cell
    return cell if isinstance(cell, bytes) else None


def parquet_files(path: Path) -> list[Path]:
    """The Parquet files of a directory by name; else the path itself."""
    return (sorted(path.glob("*.parquet")) or [path]) if path.is_dir() else [path]


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Yield a `ParquetFile`; raises DataError for errors on opening and reading."""
    pyarrow = extra_module("pyarrow", "reading this data", "parquet")
    parquet = extra_module("pyarrow.parquet", "reading this data", "parquet")
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a directory; name a file in it") from None
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as Parquet: {first_line(error)}") from None


def hub_records(
    path: str | Path, columns: Sequence[str], split: str, name: str | None = None
) -> Iterator[TableRecord]:
    """Rows of a data set loaded by the `datasets` library, with at least these columns.

    path: `hf://owner/name` (optionally with `@revision`), a directory written by `save_to_disk`, or
    of data files.  name: of its configuration.  Raises DataError for a missing split and errors of
    the library.
    """
    datasets = extra_module("datasets", "reading this data", "hub")
    try:
        data = _load_data_set(datasets, path, split, name)
        known = data.column_names or []
        tops = list(dict.fromkeys(c if c in known else c.split(".")[0] for c in columns))
        if all(top in known for top in tops):
            # Images and sound in other columns would be decoded for nothing.
            data = data.select_columns(tops)
        for number, row in enumerate(data, 1):
            yield TableRecord(f"{path}: row {number}", row, number)
    except DataError:
        raise
    except Exception as error:
        # The library passes on the errors of its many formats and transports.
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise DataError(f"{path}: the datasets library cannot read it: {reason}") from error


def _load_data_set(datasets: Any, path: str | Path, split: str, name: str | None) -> Any:
    if str(path).startswith(HUB):
        repository, _, revision = str(path).removeprefix(HUB).partition("@")
        return datasets.load_dataset(
            repository, name, split=split, revision=revision or None, streaming=True
        )
    directory = Path(path)
    if not directory.is_dir():
        raise DataError(
            f"{path} is not a directory; write a data set on the Hub as {HUB}owner/name, and "
            'read a file with the kind of its format, such as "parquet" or "jsonl"'
        )
    if not any((directory / f).is_file() for f in ("dataset_dict.json", "state.json")):
        return datasets.load_dataset(str(directory), name, split=split, streaming=True)
    data = datasets.load_from_disk(str(directory))
    if isinstance(data, datasets.DatasetDict):
        splits = [str(key) for key in data]
    else:
        splits = [str(data.split or split)]
        data = {splits[0]: data}
    if split not in splits:
        hint = did_you_mean(split, splits) or f"; it has {', '.join(map(repr, splits))}"
        raise DataError(f"{path} has no split {split!r}{hint}")
    return data[split]


def no_column(location: str | Path, column: str, known: Sequence[str]) -> str:
    """Message for a column missing from a table.

    location: file and line, or the file.  known: names of the columns that exist.
    """
    shown = ", ".join(repr(name) for name in known[:8]) + (", ..." if len(known) > 8 else "")
    hint = did_you_mean(column, known)
    remedy = "name one by --column or in the recipe"
    return f"{location} has no column {column!r}{hint} (it has {shown}); {remedy}"


def _dotted_names(row: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in row.items():
        value = _with_keys(value)
        if isinstance(value, Mapping):
            yield from _dotted_names(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _schema_fields(pyarrow: Any, fields: Iterable[Any], prefix: str = "") -> Iterator[Any]:
    """Name and type of each column; fields of structs have dotted names."""
    for field in fields:
        if pyarrow.types.is_struct(field.type):
            yield from _schema_fields(pyarrow, field.type, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}", field.type


def _delimiter(text: str) -> str:
    if len(text) != 1 or text in '"\r\n':
        raise ValueError(f"{text!r} is not a valid delimiter; use one character other than quotes")
    return text


_QUOTED_CELL = re.compile(r'"(?:[^"]|"")*"')


def delimiter_of(lines: Sequence[str]) -> str | None:
    """Delimiter that most lines have equally often, outside of quotes; None without one."""
    plain = [_QUOTED_CELL.sub("", line) for line in lines if line.strip()]
    best, most = None, 0.5
    for delimiter in "\t;,|":
        counts = Counter(line.count(delimiter) for line in plain)
        times = next((times for times, _ in counts.most_common() if times), 0)
        share = counts[times] / len(plain) if times else 0.0
        if share > most:
            best, most = delimiter, share
    return best


Column = Annotated[int, Field(ge=0)] | str
Delimiter = Annotated[str, AfterValidator(_delimiter)]


class IncompleteRows:
    """Rows that lack a column: an error at once; of a lenient reader blank rows, with a warning at
    the end of the file."""

    def __init__(self, lenient: bool) -> None:
        self._lenient = lenient
        self._first = ""
        self._lines: list[int] = []
        self._count = 0

    def add(self, line: int, message: str) -> None:
        """Count a row by its line, from 1.  Raises DataError with the message unless lenient."""
        if not self._lenient:
            raise DataError(message)
        self._first = self._first or message
        self._lines = [*self._lines, line][:NAMED_LINES]
        self._count += 1

    def look_back(self, sound: int) -> None:
        """Warn of the rows.  sound: number of the others; DataError is raised without any."""
        if self._count and not sound:
            raise DataError(self._first)
        if self._count:
            lines = ", ".join(map(str, self._lines)) + ", …" * (self._count > NAMED_LINES)
            share = f"{self._count:,} of {self._count + sound:,}"
            warn_once(f"{self._first}; read as blank: {share} rows (line {lines})")


def check_columns(header: bool, columns: Iterable[int | str | None]) -> None:
    """Raises SettingError for column names in a file without a header."""
    for column in columns:
        if isinstance(column, str) and not header:
            raise SettingError(
                f"column {column!r} has no number; header = false needs columns by number, "
                "counted from 0"
            )


def tab_cells(path: Path, lenient: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each line; warns of a few lines that have more cells than the first."""
    width = wide = example = number = 0
    for number, line in enumerate(read_lines(path, lenient), 1):
        cells = line.split("\t")
        width = width or len(cells)
        if len(cells) > width:
            wide, example = wide + 1, example or number
        yield number, cells
    if 0 < wide <= FEW_WIDE * number:
        fault = f"has more columns than line 1: a tab inside a text cuts it; so {wide:,} of"
        warn_once(f"{path}: line {example} {fault} {number:,} lines")


def tsv_rows(
    path: Path, columns: Sequence[int | str], lenient: bool = False
) -> Iterator[tuple[str, ...]]:
    """Columns of a tab-separated file, by number from 0, or by name if the first line is a header.

    There is no quoting: every tab and line end separates; cells quoted by a spreadsheet cause a
    warning.  An empty line is a row of empty texts.  Raises DataError for a missing column.

    path: of the file.  columns: numbers or names, in the order of the result.  lenient: as in
    `read_lines` and `IncompleteRows`.
    """
    lines = tab_cells(path, lenient)
    names: list[str] = []
    if any(isinstance(column, str) for column in columns):
        names = next(lines)[1]
    indices = _indices(path, names, columns, _csv_hint("\t".join(names)))
    width = max(indices) + 1
    quoted = QuotedCells(path, columns)
    incomplete, sound = IncompleteRows(lenient), 0
    for number, cells in lines:
        fields = cells if any(cells) else [*cells, *[""] * width]
        if width > len(fields):
            hint = _csv_hint("\t".join(cells))
            remedy = f"separate its texts by tabs, or remove it{hint}"
            fault = f"line {number} has {len(fields)} of {width} columns; {remedy}"
            incomplete.add(number, f"{path}: {fault}")
            fields += [""] * (width - len(fields))
        else:
            sound += 1
        row = tuple(fields[i] for i in indices)
        quoted.look_at(row, number)
        yield row
    incomplete.look_back(sound)
    quoted.look_back()


def csv_rows(
    path: Path, columns: Sequence[int | str], delimiter: str = ",", header: bool = True
) -> Iterator[tuple[str, ...]]:
    """Columns of a CSV file, as from `numbered_csv_rows`.

    path: of the file.  columns: by number or name.  delimiter: between cells.  header: True if the
    first row holds names.
    """
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

    path: of the file.  delimiter: between cells.  header: True if the first row holds names.
    lenient: as in `read_lines` and `IncompleteRows`.
    """
    cells = csv_cells(read_lines(path, lenient), str(path), delimiter, lenient)
    rows = (row for row in cells if row[1])
    number, names = next(rows, (1, []))
    hint = _delimiter_hint(names, delimiter)
    indices = _indices(path, names if header else [], columns, hint)
    if max(indices) >= len(names):
        raise DataError(
            f"{path}: line {number} has {len(names)} of {max(indices) + 1} columns, cut by "
            f"{delimiter!r}{hint}"
        )
    first = [] if header else [(number, names)]
    for number, row in itertools.chain(first, rows):
        yield number, tuple(row[i] for i in indices)


def csv_cells(
    lines: Iterable[str], location: str, delimiter: str = ",", lenient: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Number of the first line of each row, and its cells; blank lines have none.

    location: named in messages.  delimiter: between cells.  lines: read only as far as a row needs.
    lenient: as in `IncompleteRows`.  Raises DataError for invalid CSV, and for a row with more or
    fewer cells than the first.
    """
    csv.field_size_limit(LINE_LIMIT.most() << 20)
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, strict=True)
    width, first, number, sound = 0, 1, 1, -1  # the first row sets the width, and may be a header
    incomplete = IncompleteRows(lenient)
    try:
        for row in rows:
            if row and not width:
                width, first = len(row), number
            if row and len(row) != width:
                incomplete.add(
                    number,
                    f"{location}: line {number} has {len(row)} columns, but line {first} has "
                    f"{width}; check the delimiter ({delimiter!r}), and quote any text that "
                    "contains it",
                )
                row = [""] * width
            elif row:
                sound += 1
            yield number, row
            number = rows.line_num + 1
        incomplete.look_back(sound)
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


def _delimiter_hint(names: Sequence[str], delimiter: str) -> str:
    """End of a message about a header in which another delimiter stands."""
    other = delimiter_of(names) if len(names) == 1 else None
    return "" if other is None else f'; set delimiter = "{other}" in place of "{delimiter}"'


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
