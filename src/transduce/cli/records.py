"""JSON records as inputs of `predict` and `translate`: other fields are kept."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transduce.cli.lines import LineBatch
from transduce.data.lines import warn_once
from transduce.data.tables import Record, one_a_line
from transduce.errors import DataError, RunError, SettingError
from transduce.limits import from_json

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions

logger = logging.getLogger("transduce")

SURROGATE = re.compile("[\ud800-\udfff]")
ERROR = "error"
"""Field of a record that has no answer."""
LETTERS_TO_JUDGE = 5
"""In shorter names of settings one letter makes another word."""


@dataclass
class Records:
    """The records of consecutive lines, up to the first line that is none."""

    first: int
    """Number of the first line, from 0."""
    items: list[dict[str, Any] | None]
    """None for a blank line."""
    inputs: list[tuple[str, ...]]
    """The texts of each record; empty ones where there are none."""
    errors: dict[int, str]
    """Why some of the records, by their places, have no answer."""
    error: DataError | None = None
    """What is wrong with the line after them, if they had to end there."""

    def reject(self, place: int, reason: str) -> None:
        """Let a record have no answer; the others are answered none the less."""
        self.errors[place] = reason
        self.inputs[place] = ("",) * len(self.inputs[place])

    def answered(self, answers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Each record as a line, with the fields of its answer, or its error, put in."""
        for place, (record, fields) in enumerate(zip(self.items, answers, strict=True)):
            if record is None:
                yield ""
                continue
            record.update({ERROR: self.errors[place]} if place in self.errors else fields)
            line = json.dumps(record, ensure_ascii=False)
            yield json.dumps(record) if SURROGATE.search(line) else line


class ErrorCount:
    """Tells of records without an answer: of the first at once, of all at the end."""

    def __init__(self, name: str) -> None:
        """name: of the input, for messages."""
        self._name = name
        self._count = 0

    def note(self, records: Records) -> None:
        """Count the errors of a batch that has been answered."""
        if records.errors and not self._count:
            place, reason = min(records.errors.items())
            line = f"{self._name}: line {records.first + place + 1}: {reason}"
            logger.warning('%s; the record has the field "%s" instead of an answer', line, ERROR)
        self._count += len(records.errors)

    def tell(self) -> None:
        """Log how many there were, if more than the first."""
        if self._count > 1:
            logger.warning(
                '%s: %d records have the field "%s" instead of an answer',
                self._name,
                self._count,
                ERROR,
            )


def read_records(batch: LineBatch, name: str, fields: tuple[str, ...]) -> Records:
    """The records of a batch of lines; `name` is the input's, for messages.

    fields: the names under which a record has its texts, dotted ones in nested objects; a record
    without one of them has an error.
    """
    found = Records(batch.first, [], [], {})
    for place, line in enumerate(batch.lines):
        try:
            record = _record(line, fields)
        except ValueError as error:
            found.error = DataError(f"{name}: line {batch.first + place + 1} {error}")
            break
        found.items.append(record)
        found.inputs.append(("",) * len(fields))
        if record is not None:
            try:
                found.inputs[place] = tuple(_text(record, field) for field in fields)
            except DataError as error:
                found.reject(place, str(error))
    return found


def with_options(
    records: Records,
    name: str,
    base: DecodingOptions,
    check: Callable[[DecodingOptions], None],
) -> list[DecodingOptions]:
    """How each record is to be decoded: as `base` says, and as its own fields say otherwise.

    One whose options cannot be has an error.  name: the input's, for messages.  check: what else
    to ask of options.
    """
    from transduce.decoding.options import DecodingOptions

    names = {field.name for field in dataclasses.fields(DecodingOptions)}
    found: list[DecodingOptions] = []
    for place, record in enumerate(records.items):
        given = {key: value for key, value in (record or {}).items() if key in names}
        for key in record or {}:
            if key not in names:
                _warn_if_misspelt(key, names, name)
        own = base
        try:
            own = base.with_settings(given) if given else base
            check(own)
        except (SettingError, RunError) as error:
            records.reject(place, str(error))
            own = base
        found.append(own)
    return found


def _warn_if_misspelt(field: str, settings: Iterable[str], name: str) -> None:
    near = next((setting for setting in settings if _one_letter_away(field, setting)), None)
    if near is not None:
        warn_once(
            f'{name}: the field "{field}" is not a setting of decoding; did you mean "{near}"? It '
            "is kept, and nothing else comes of it"
        )


def _one_letter_away(field: str, setting: str) -> bool:
    """Whether they differ by one letter, by two that changed places, or by case and joints."""
    bare = re.sub("[^a-z0-9]", "", field.lower())
    if bare == setting.replace("_", ""):
        return True
    if abs(len(field) - len(setting)) > 1 or len(setting) < LETTERS_TO_JUDGE:
        return False
    start = 0
    while start < min(len(field), len(setting)) and field[start] == setting[start]:
        start += 1
    rest, other = field[start:], setting[start:]
    if rest[:2] == other[1::-1] and rest[2:] == other[2:]:
        return True
    return rest[1:] == other[1:] or rest == other[1:] or rest[1:] == other


def _record(line: str, fields: tuple[str, ...]) -> dict[str, Any] | None:
    """Raises ValueError saying what the line is instead of a record."""
    if not line.strip():
        return None
    example = "{" + ", ".join(f'"{field}": "..."' for field in fields) + "}"
    remedy = one_a_line(line) or f"; write {example}"
    try:
        record = from_json(line)
        json.dumps(record, allow_nan=False)  # Python reads NaN and 1e999, which JSON has not
    except ValueError as error:
        reason = getattr(error, "msg", str(error))
        raise ValueError(f"is not JSON ({reason}){remedy}") from None
    if not isinstance(record, dict):
        raise ValueError(f"is not a JSON object{remedy}")
    return record


def _text(record: Mapping[str, Any], field: str) -> str:
    """The text under a name.  Raises DataError where there is none."""
    value = Record("the record", record).value(field)
    if not isinstance(value, str):
        raise DataError(f'"{field}" is {json.dumps(value)[:40]}, not a text in quotation marks')
    # JSON can spell half a character, "\ud800", which no tokenizer can take.
    return SURROGATE.sub("\ufffd", value)
