"""Read texts, or pairs of texts, with a label or a score, from common formats."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from transduce.config import section
from transduce.data.delimited import Column, Delimiter, check_columns, csv_rows, tsv_rows
from transduce.data.escaped_text import Entities, unescaped
from transduce.data.pairs import FilePath, HubPath, located
from transduce.data.tables import (
    Record,
    hub_records,
    json_records,
    parquet_records,
)
from transduce.errors import DataError, printable_name


class LabelledText(NamedTuple):
    """One text or text pair, and its label."""

    texts: tuple[str, ...]
    label: str

    @property
    def blank(self) -> bool:
        """True if there is no text."""
        return not any(text.strip() for text in self.texts)


class ScoredPair(NamedTuple):
    """Two texts and a number, such as their similarity as people see it."""

    texts: tuple[str, str]
    score: float


@section
class LabelledTabSeparated:
    """A tab-separated file, plain or compressed."""

    kind: Literal["tsv"] = "tsv"
    path: FilePath
    """The file."""
    text: Column = 0
    """Column of the text: a number from 0, or a name from the header line."""
    second: Column | None = None
    """Column of the second text, for labelled pairs."""
    label: Column = 1
    """Column of the label."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""


@section
class LabelledCommaSeparated:
    """A CSV file, plain or compressed, quoted as in RFC 4180 and spreadsheets."""

    kind: Literal["csv"] = "csv"
    path: FilePath
    """The file."""
    delimiter: Delimiter = ","
    """Separator between columns: a comma, `;`, or a tab, for TSV with quoting."""
    header: bool = True
    """Read column names from the first line."""
    text: Column = "text"
    """Column of the text: a name from the header line, or a number from 0."""
    second: Column | None = None
    """Column of the second text, for labelled pairs."""
    label: Column = "label"
    """Column of the label."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""

    def __post_init__(self) -> None:
        check_columns(self.header, (self.text, self.second, self.label))


@section
class LabelledJsonLines:
    """A file with one JSON object per line, plain or compressed."""

    kind: Literal["jsonl"] = "jsonl"
    path: FilePath
    """The file."""
    text: str = "text"
    """Field of the text; `question.text` goes into nested objects."""
    second: str | None = None
    """Field of the second text, for labelled pairs."""
    label: str = "label"
    """Field of the label: a string, a whole number, or true and false."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""


@section
class LabelledParquet:
    """A Parquet file (needs the extra `parquet`)."""

    kind: Literal["parquet"] = "parquet"
    path: FilePath
    """The file."""
    text: str = "text"
    """Column of the text; `question.text` goes into nested columns."""
    second: str | None = None
    """Column of the second text, for labelled pairs."""
    label: str = "label"
    """Column of the label: strings, whole numbers or booleans."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""


@section
class LabelledHubDataset:
    """A data set for the `datasets` library (needs the extra `hub`)."""

    kind: Literal["hub"] = "hub"
    path: HubPath
    """`hf://owner/name`, a directory of data files, or one written by `save_to_disk`."""
    split: str = "train"
    """The split."""
    name: str | None = None
    """Configuration of the data set, if it has several."""
    text: str = "text"
    """Column of the text; `question.text` goes into nested columns."""
    second: str | None = None
    """Column of the second text, for labelled pairs."""
    label: str = "label"
    """Column of the label: strings, whole numbers or booleans."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""


LabelledConfig = Annotated[
    LabelledTabSeparated
    | LabelledCommaSeparated
    | LabelledJsonLines
    | LabelledParquet
    | LabelledHubDataset,
    Field(discriminator="kind"),
]


def read_labelled(config: LabelledConfig, root: Path) -> Iterator[LabelledText]:
    """Stream all labelled texts in the order of the input, without blank lines.

    White space in a label counts as one space, and around it as none: a label is one line, with
    unprintable characters spelt out.
    root: the directory that relative paths start from.  Raises DataError, while reading, if the
    input does not match its section, and for a text without a label.
    """
    entities = Entities(str(config.path))
    for number, row in enumerate(_rows(config, root, _label), 1):
        *texts, label = row
        if config.unescape:
            texts = [unescaped(text) for text in texts]
        else:
            entities.look_at(*texts)
        if not any(part.strip() for part in row):
            continue
        label = printable_name(label)
        if not label:
            raise DataError(
                f"{located(config.path, root)}: row {number} has no label: {texts[0][:40]!r}"
            )
        yield LabelledText(tuple(texts), label)
    entities.look_back()


def read_scored(config: LabelledConfig, root: Path) -> Iterator[ScoredPair]:
    """Stream all pairs of texts with numbers as their labels, without blank rows.

    root: the directory that relative paths start from.  Raises DataError, while reading, if the
    input does not match its section, for a blank text, and for a label that is not a number.
    """
    for number, row in enumerate(_rows(config, root, _score), 1):
        *texts, label = row
        if not any(part.strip() for part in row):
            continue
        location = f"{located(config.path, root)}: row {number}"
        score = as_score(label, location)
        first, second = map(unescaped, texts) if config.unescape else texts
        if not (first.strip() and second.strip()):
            raise DataError(f"{location} has a blank text; remove it")
        yield ScoredPair((first, second), score)


def read_texts(config: LabelledConfig, root: Path) -> Iterator[tuple[str, ...]]:
    """Stream the one text or two of each row, without reading labels; blank rows are skipped.

    root: the directory that relative paths start from.  Raises DataError, while reading, if the
    input does not match its section.
    """
    for texts in _rows(config, root, None):
        if any(text.strip() for text in texts):
            yield tuple(map(unescaped, texts)) if config.unescape else texts


def as_score(text: str, location: str) -> float:
    """A finite number.  location: its name in messages.  Raises DataError for other text."""
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise DataError(f"{location}: the score {text[:40]!r} is not a number")
    return score


def _rows(
    config: LabelledConfig, root: Path, label: Callable[[Record, str], str] | None
) -> Iterator[tuple[str, ...]]:
    """Texts and label of each row.  label: reads the label of a record; None for texts alone."""
    if isinstance(config, LabelledTabSeparated | LabelledCommaSeparated):
        second = () if config.second is None else (config.second,)
        columns = (config.text, *second, *(() if label is None else (config.label,)))
        if isinstance(config, LabelledTabSeparated):
            yield from tsv_rows(root / config.path, columns)
        else:
            yield from csv_rows(root / config.path, columns, config.delimiter, config.header)
        return
    names = (config.text,) if config.second is None else (config.text, config.second)
    every = names if label is None else (*names, config.label)
    match config:
        case LabelledJsonLines():
            records = json_records(root / config.path)
        case LabelledParquet():
            records = parquet_records(root / config.path, every)
        case LabelledHubDataset():
            records = hub_records(located(config.path, root), every, config.split, config.name)
    for record in records:
        texts = record.texts(names)
        yield texts if label is None else (*texts, label(record, config.label))


def _label(record: Record, name: str) -> str:
    """A label as text; numbers and booleans as in JSON."""
    value = record.value(name)
    if isinstance(value, float):
        raise DataError(
            f"{record.location}: {name!r} is a float, but labels are strings, whole numbers or "
            "booleans; convert the column, for example with pandas: df[column].astype(int)"
        )
    return json.dumps(value) if isinstance(value, bool | int) else record.text(name)


def _score(record: Record, name: str) -> str:
    """A number as text."""
    value = record.value(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else record.text(name)
