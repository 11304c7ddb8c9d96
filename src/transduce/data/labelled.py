"""Read texts, or pairs of texts, with a label or a score, from common formats."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from transduce.data.delimited import Column
from transduce.data.escaped_text import Entities, unescaped
from transduce.data.sources import CsvFile, HubData, JsonLinesFile, ParquetFile, TsvFile
from transduce.data.tables import Record
from transduce.errors import DataError, printable_name
from transduce.settings.kinds import ByKind
from transduce.settings.sections import section


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
class LabelColumns:
    """Base of sections of labelled texts."""

    text: Column = "text"
    """Column of the text: a name from the header line, or a number from 0."""
    second: Column | None = None
    """Column of the second text, for labelled pairs."""
    label: Column = "label"
    """Column of the label."""
    unescape: bool = False
    """Read entities of HTML and Moses, such as `&quot;` and `&#124;`, as their characters."""

    def columns(self) -> tuple[Any, ...]:
        """All columns, the label last."""
        return (self.text, *(() if self.second is None else (self.second,)), self.label)


@section
class NamedLabelColumns(LabelColumns):
    """Base of sections of labelled texts in tables without numbers of columns."""

    text: str = "text"
    """Column of the text; `question.text` goes into nested columns."""
    second: str | None = None
    """Column of the second text, for labelled pairs."""
    label: str = "label"
    """Column of the label: strings, whole numbers or booleans."""


@section
class LabelledTabSeparated(LabelColumns, TsvFile):
    """A tab-separated file, plain or compressed."""

    text: Column = 0
    """Column of the text: a number from 0, or a name from the header line."""
    label: Column = 1
    """Column of the label."""


@section
class LabelledCommaSeparated(LabelColumns, CsvFile):
    """A CSV file, plain or compressed, quoted as in RFC 4180 and spreadsheets."""


@section
class LabelledJsonLines(NamedLabelColumns, JsonLinesFile):
    """A file with one JSON object per line, plain or compressed."""


@section
class LabelledParquet(NamedLabelColumns, ParquetFile):
    """A Parquet file (needs the extra `parquet`)."""


@section
class LabelledHubDataset(NamedLabelColumns, HubData):
    """A data set for the `datasets` library (needs the extra `hub`)."""


LabelledConfig = Annotated[
    LabelledTabSeparated
    | LabelledCommaSeparated
    | LabelledJsonLines
    | LabelledParquet
    | LabelledHubDataset,
    ByKind(),
]


def read_labelled(config: LabelledConfig, root: Path) -> Iterator[LabelledText]:
    """Stream all labelled texts, without blank lines, each label as a line without unprintable
    characters.  Raises DataError for a text without a label too."""
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
                f"{config.location(root)}: row {number} has no label: {texts[0][:40]!r}"
            )
        yield LabelledText(tuple(texts), label)
    entities.look_back()


def read_scored(config: LabelledConfig, root: Path) -> Iterator[ScoredPair]:
    """Stream all pairs of texts with numbers as their labels, without blank rows.  Raises DataError
    for a blank text, and a label that is not a number, too."""
    for number, row in enumerate(_rows(config, root, _score), 1):
        *texts, label = row
        if not any(part.strip() for part in row):
            continue
        location = f"{config.location(root)}: row {number}"
        score = as_score(label, location)
        first, second = map(unescaped, texts) if config.unescape else texts
        if not (first.strip() and second.strip()):
            raise DataError(f"{location} has a blank text; remove it")
        yield ScoredPair((first, second), score)


def read_texts(config: LabelledConfig, root: Path) -> Iterator[tuple[str, ...]]:
    """Stream the text or two texts of each row without labels; blank rows are skipped."""
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
    *texts, label_column = config.columns()
    if label is None:
        yield from config.rows(root, texts)
    elif isinstance(config, TsvFile | CsvFile):
        yield from config.rows(root, config.columns())
    else:
        for record in config.records(root, config.columns()):
            yield (*record.texts(texts), label(record, label_column))


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
    value = record.value(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else record.text(name)
