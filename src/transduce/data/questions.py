"""Read questions about passages, with answers quoted from them: JSON lines, or SQuAD's format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from transduce.data.lines import read_lines
from transduce.data.sources import Files
from transduce.data.tables import check_surrogates, json_records
from transduce.errors import DataError
from transduce.settings.kinds import ByKind
from transduce.settings.mistakes import did_you_mean
from transduce.settings.sections import section
from transduce.support.limits import from_json


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
