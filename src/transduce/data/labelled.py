"""Texts with a label, a score or an answer: read from common formats."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from transduce.data.sources import CsvFile, Files, HubData, JsonLinesFile, ParquetFile, TsvFile
from transduce.data.tables import Column, TableRecord, check_surrogates, json_records
from transduce.data.text_files import Entities, read_lines, unescaped
from transduce.errors import DataError, printable_name
from transduce.settings.sections import ByKind, did_you_mean, section
from transduce.support.files import from_json


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
    config: LabelledConfig, root: Path, label: Callable[[TableRecord, str], str] | None
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


def _label(record: TableRecord, name: str) -> str:
    """A label as text; numbers and booleans as in JSON."""
    value = record.value(name)
    if isinstance(value, float):
        raise DataError(
            f"{record.location}: {name!r} is a float, but labels are strings, whole numbers or "
            "booleans; convert the column, for example with pandas: df[column].astype(int)"
        )
    return json.dumps(value) if isinstance(value, bool | int) else record.text(name)


def _score(record: TableRecord, name: str) -> str:
    value = record.value(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return repr(value) if is_number else record.text(name)


@section
class QuestionLines(Files):
    """Files with one question as a JSON object per line, plain or compressed.

    Fields: `context`, `question`, `answers`, and optionally `id`, `title` and `is_impossible`.
    Answers are objects with `text` and `answer_start`, or an object with a list of each, or plain
    texts.
    """

    kind: Literal["jsonl"] = "jsonl"


@section
class SquadFile(Files):
    """Files in SQuAD's published format, plain or compressed: `data`, `paragraphs`, `qas`."""

    kind: Literal["squad"] = "squad"


QuestionsConfig = Annotated[QuestionLines | SquadFile, ByKind()]


class Answer(NamedTuple):
    """A reference answer.  start: its first character by the data, which may be wrong; None if not
    given."""

    text: str
    start: int | None = None


class Question(NamedTuple):
    """A question about a passage.  answers: the references; none for an unanswerable question."""

    id: str
    title: str
    context: str
    question: str
    answers: tuple[Answer, ...]

    @property
    def references(self) -> list[str]:
        """Accepted answers: the empty text for an unanswerable question."""
        texts = dict.fromkeys(answer.text for answer in self.answers if answer.text.strip())
        return list(texts) or [""]

    def span(self) -> tuple[int, int] | None:
        """Characters [start, end) of the most frequent answer that is in the passage; None without
        any."""
        counts = Counter(answer.text for answer in self.answers)
        for answer in sorted(self.answers, key=lambda answer: -counts[answer.text]):
            text = answer.text.strip()
            start = find_answer(self.context, text, answer.start)
            if start is not None:
                return start, start + len(text)
        return None


def find_answer(context: str, text: str, near: int | None = None) -> int | None:
    """Position of `text` in the passage nearest to `near`, or the first; None without any."""
    if not text:
        return None
    if near is None or near < 0:
        near = 0
    before = context.rfind(text, 0, near + len(text))  # begins at `near` or before it
    after = context.find(text, near)
    starts = [start for start in (before, after) if start >= 0]
    return min(starts, key=lambda start: abs(start - near), default=None)


def read_questions(config: QuestionLines | SquadFile, root: Path) -> Iterator[Question]:
    """Stream all questions, in the order of the input."""
    read = _jsonl if isinstance(config, QuestionLines) else _squad
    for path in config.files(root):
        yield from read(path)


def _jsonl(path: Path) -> Iterator[Question]:
    for location, row, _ in json_records(path):
        yield _question(row, _text(row, "context", location), _title(row), location)


def _squad(path: Path) -> Iterator[Question]:
    try:
        content = from_json("\n".join(read_lines(path)))
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON: {error}") from None
    for i, article in enumerate(_items(content, "data", str(path))):
        of_article = f"{path}: data[{i}]"
        for j, paragraph in enumerate(_items(article, "paragraphs", of_article)):
            location = f"{of_article}.paragraphs[{j}]"
            context = _text(paragraph, "context", location)
            for k, row in enumerate(_items(paragraph, "qas", location)):
                yield _question(row, context, _title(article), f"{location}.qas[{k}]")


def _items(row: Any, name: str, location: str) -> list[Mapping[str, Any]]:
    entries = _field(row, name, location)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DataError(f"{location}: {name!r} must be a list of objects")
    return entries


def _question(row: Mapping[str, Any], context: str, title: str, location: str) -> Question:
    impossible = row.get("is_impossible") is True
    answers = () if impossible else tuple(_answers(_field(row, "answers", location), location))
    question = _text(row, "question", location)
    return Question(str(row.get("id", "")), title, context, question, answers)


def _answers(answers: Any, location: str) -> Iterator[Answer]:
    if isinstance(answers, dict):  # a list of each field, as data frames have it
        texts = _field(answers, "text", f"{location}: 'answers'")
        if not isinstance(texts, list):
            kind = type(texts).__name__
            raise DataError(f"{location}: 'text' of 'answers' must be a list, not {kind}")
        starts = answers.get("answer_start") or [None] * len(texts)
        if not isinstance(starts, list) or len(texts) != len(starts):
            raise DataError(
                f"{location}: 'text' and 'answer_start' of 'answers' must have the same length"
            )
        answers = [
            {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
        ]
    if not isinstance(answers, Iterable) or isinstance(answers, str):
        raise DataError(f"{location}: 'answers' must be a list, not {type(answers).__name__}")
    for answer in answers:
        if isinstance(answer, str):
            answer = {"text": answer}
        start = answer.get("answer_start") if isinstance(answer, Mapping) else None
        if start is not None and (not isinstance(start, int) or isinstance(start, bool)):
            raise DataError(f"{location}: 'answer_start' must be a whole number, not {start!r}")
        yield Answer(_text(answer, "text", location), start)


def _title(row: Mapping[str, Any]) -> str:
    title = row.get("title")
    return title if isinstance(title, str) else ""


def _text(row: Any, name: str, location: str) -> str:
    text = _field(row, name, location)
    if not isinstance(text, str):
        raise DataError(f"{location}: {name!r} must be text, not {type(text).__name__}")
    check_surrogates(text, name, location)
    return text


def _field(row: Any, name: str, location: str) -> Any:
    if not isinstance(row, dict):
        raise DataError(f"{location} must be an object with a field {name!r}, not {row!r:.40}")
    if name not in row:
        shown = ", ".join(repr(key) for key in list(row)[:8]) or "none"
        raise DataError(
            f"{location} has no field {name!r}{did_you_mean(name, map(str, row))} (it has {shown})"
        )
    return row[name]
