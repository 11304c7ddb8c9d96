"""Texts, or pairs of texts, with a label, from any of the formats that they come in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from transduce.config import section
from transduce.data.lines import read_lines
from transduce.data.pairs import Column, FilePath, nameable
from transduce.data.tables import (
    BATCH_ROWS,
    HUB,
    _extra,
    _first_line,
    _hub_records,
    _lookup,
    _no_column,
    _schema_names,
    _text,
    tsv_rows,
)
from transduce.errors import DataError


class LabelledText(NamedTuple):
    """One text, or two that belong together, and the right label."""

    texts: tuple[str, ...]
    label: str


@section
class LabelledTabSeparated:
    """A tab-separated file, plain or `.gz`."""

    kind: Literal["tsv"] = "tsv"
    path: FilePath
    """The file."""
    text: Column = 0
    """Column of the text: a number from 0, or a name from the header line."""
    second: Column | None = None
    """Column of the second text, where the label is that of a pair."""
    label: Column = 1
    """Column of the label."""


@section
class LabelledJsonLines:
    """A file with one JSON object a line, plain or `.gz`."""

    kind: Literal["jsonl"] = "jsonl"
    path: FilePath
    """The file."""
    text: str = "text"
    """Field of the text; `question.text` goes into nested objects."""
    second: str | None = None
    """Field of the second text, where the label is that of a pair."""
    label: str = "label"
    """Field of the label: a string, a whole number, or true and false."""


@section
class LabelledParquet:
    """A Parquet file (needs the extra `parquet`)."""

    kind: Literal["parquet"] = "parquet"
    path: FilePath
    """The file."""
    text: str = "text"
    """Column of the text; `question.text` goes into nested columns."""
    second: str | None = None
    """Column of the second text, where the label is that of a pair."""
    label: str = "label"
    """Column of the label: strings, whole numbers or booleans."""


@section
class LabelledHubDataset:
    """A data set for the `datasets` library (needs the extra `hub`)."""

    kind: Literal["hub"] = "hub"
    path: Annotated[str, AfterValidator(nameable)]
    """`hf://owner/name`, or a directory of data files or one written by `save_to_disk`."""
    split: str = "train"
    """Which split of it."""
    name: str | None = None
    """Which configuration of it, if it has several."""
    text: str = "text"
    """Column of the text; `question.text` goes into nested columns."""
    second: str | None = None
    """Column of the second text, where the label is that of a pair."""
    label: str = "label"
    """Column of the label: strings, whole numbers or booleans."""


LabelledConfig = Annotated[
    LabelledTabSeparated | LabelledJsonLines | LabelledParquet | LabelledHubDataset,
    Field(discriminator="kind"),
]


def read_labelled(config: LabelledConfig, root: Path) -> Iterator[LabelledText]:
    """Every labelled text in the order of the input, streamed; lines that are all blank are not.

    White space in and around a label counts as one space, or none: a label is one line.  root:
    the directory that relative paths start from.  Raises DataError, while reading, for any input
    that is not what the section says it is, and for a text without a label.
    """
    for number, row in enumerate(_rows(config, root), 1):
        *texts, label = row
        if not any(part.strip() for part in row):
            continue
        label = " ".join(label.split())
        if not label:
            raise DataError(f"{config.path}: row {number} has no label: {texts[0][:40]!r}")
        yield LabelledText(tuple(texts), label)


def _rows(config: LabelledConfig, root: Path) -> Iterator[tuple[str, ...]]:
    """The texts of each row, and its label."""
    if isinstance(config, LabelledTabSeparated):
        second = () if config.second is None else (config.second,)
        yield from tsv_rows(root / config.path, (config.text, *second, config.label))
        return
    names = (config.text,) if config.second is None else (config.text, config.second)
    match config:
        case LabelledJsonLines():
            records = _json_records(root / config.path)
        case LabelledParquet():
            records = _parquet_records(root / config.path, (*names, config.label))
        case LabelledHubDataset():
            path = config.path if config.path.startswith(HUB) else root / config.path
            found = _hub_records(path, (*names, config.label), config.split, config.name)
            records = ((f"{path}: row {i}", row) for i, row in enumerate(found, 1))
    for place, record in records:
        texts = [_text(_lookup(record, name, place), name, place) for name in names]
        yield *texts, _label(_lookup(record, config.label, place), config.label, place)


def _label(value: Any, name: str, place: str) -> str:
    """A label as text; numbers and truth values as JSON writes them."""
    if isinstance(value, bool | int):
        return json.dumps(value)
    return _text(value, name, place)


def _json_records(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a file of JSON lines, each with its place; blank lines are passed over."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        place = f"{path}: line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place} is not valid JSON: {error}") from None
        if not isinstance(record, dict):
            raise DataError(f"{place} is not a JSON object")
        yield place, record


def _parquet_records(
    path: Path, columns: tuple[str, ...]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of a Parquet file with these columns, each with its place."""
    pyarrow = _extra("pyarrow", "parquet")
    parquet = _extra("pyarrow.parquet", "parquet")
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            known = list(_schema_names(pyarrow, file.schema_arrow))
            for column in columns:
                if column not in known:
                    raise DataError(_no_column(path, column, known))
            asked = list(dict.fromkeys(columns))
            for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=asked):
                for record in batch.to_pylist():
                    number += 1
                    yield f"{path}: row {number}", record
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as Parquet: {_first_line(error)}") from None
