"""JSON records as inputs of `predict` and `translate`: other fields are kept."""

from __future__ import annotations

import dataclasses
import difflib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transduce.cli.lines import LineBatch
from transduce.data.lines import warn_once
from transduce.data.tables import Record, one_a_line
from transduce.errors import DataError, RunError, SettingError
from transduce.support.limits import SURROGATES, from_json

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions

logger = logging.getLogger("transduce")

ERROR = "error"
"""Field of a record without an answer."""
SIMILAR = 0.85
"""Similarity of a field to the setting that it may be meant for: a letter or two."""


@dataclass
class Records:
    """Records of consecutive lines."""

    first: int
    """Number of the first line, from 0."""
    items: list[dict[str, Any] | None]
    """None for a blank line, without fields for a line that is not a record."""
    inputs: list[tuple[str, ...]]
    """Texts of each record, empty for blank and failed records."""
    errors: dict[int, str]
    """Errors of failed records, by index."""

    def reject(self, index: int, reason: str) -> None:
        """Mark a record as failed; the others are answered nevertheless."""
        self.errors[index] = reason
        self.inputs[index] = ("",) * len(self.inputs[index])

    def answered(self, answers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Each record as a line, with the fields of its answer, or its error, added."""
        for index, (record, fields) in enumerate(zip(self.items, answers, strict=True)):
            if record is None:
                yield ""
                continue
            record.update(fields if index not in self.errors else {ERROR: self._error(index)})
            line = json.dumps(record, ensure_ascii=False)
            yield json.dumps(record) if SURROGATES.search(line) else line

    def _error(self, index: int) -> str:
        """Error of a record, with its line number if it has no fields to identify it by."""
        number = "" if self.items[index] else f"line {self.first + index + 1}: "
        return f"{number}{self.errors[index]}"


def read_records(
    batches: Iterable[LineBatch], fields: tuple[str, ...], name: str
) -> Iterator[Records]:
    """Records of batches of lines, with warnings of failed records after their answers.

    fields: as in `records_of`.  name: input name for messages.
    """
    failed = 0
    for batch in batches:
        records = records_of(batch, fields)
        yield records
        if records.errors and not failed:
            index, reason = min(records.errors.items())
            line = f"{name}: line {records.first + index + 1}: {reason}"
            logger.warning('%s; the record is returned with a field "%s"', line, ERROR)
        failed += len(records.errors)
    if failed > 1:
        logger.warning('%s: %d records failed; each has a field "%s"', name, failed, ERROR)


def records_of(batch: LineBatch, fields: tuple[str, ...]) -> Records:
    """Records of a batch of lines, without the errors of an earlier pass.

    fields: text fields, dotted for nested objects; a record that lacks any, and a line that is no
    record, have errors.
    """
    records = Records(batch.first, [], [], {})
    reads_errors = ERROR in {field.partition(".")[0] for field in fields}
    for index, line in enumerate(batch.lines):
        records.inputs.append(("",) * len(fields))
        if not line.strip():
            records.items.append(None)
            continue
        record: dict[str, Any] = {}
        try:
            record = _record(line, fields)
            records.inputs[index] = tuple(_text(record, field) for field in fields)
        except DataError as error:
            records.reject(index, str(error))
        if not reads_errors:
            record.pop(ERROR, None)
        records.items.append(record)
    return records


def with_options(
    records: Records,
    name: str,
    base: DecodingOptions,
    check: Callable[[DecodingOptions], None],
) -> list[DecodingOptions]:
    """Decoding options of each record: `base`, overridden by fields named after settings.

    A record with invalid options gets an error.  name: input name for messages.  check: further
    validation of options.
    """
    from transduce.decoding.options import DecodingOptions

    names = {field.name for field in dataclasses.fields(DecodingOptions)}
    each: list[DecodingOptions] = []
    for index, record in enumerate(records.items):
        settings = {key: value for key, value in (record or {}).items() if key in names}
        for key in record or {}:
            if key not in names:
                _warn_if_misspelt(key, names, name)
        try:
            options = base.with_settings(settings) if settings else base
            check(options)
        except (SettingError, RunError) as error:
            records.reject(index, str(error))
            options = base
        each.append(options)
    return each


def _warn_if_misspelt(field: str, settings: Iterable[str], name: str) -> None:
    spelled = field.lower().replace("-", "_")
    for near in difflib.get_close_matches(spelled, settings, 1, SIMILAR):
        warn_once(
            f'{name}: field "{field}" is not a decoding setting and has no effect; did you mean '
            f'"{near}"?'
        )


def _record(line: str, fields: tuple[str, ...]) -> dict[str, Any]:
    example = "{" + ", ".join(f'"{field}": "..."' for field in fields) + "}"
    remedy = one_a_line(line) or f"; expected {example}"
    try:
        record = from_json(line)
        json.dumps(record, allow_nan=False)  # Python accepts NaN and 1e999, JSON does not
    except ValueError as error:
        reason = getattr(error, "msg", str(error))
        raise DataError(f"not valid JSON ({reason}){remedy}") from None
    if not isinstance(record, dict):
        raise DataError(f"not a JSON object{remedy}")
    return record


def _text(record: Mapping[str, Any], field: str) -> str:
    value = Record("the record", record).value(field)
    if not isinstance(value, str):
        raise DataError(f'"{field}": expected a string, got {json.dumps(value)[:40]}')
    # JSON may contain lone surrogates, "\ud800", which no tokenizer accepts.
    return SURROGATES.sub("\ufffd", value)
