"""Inputs of `predict` and `translate`: lines, or JSON records that keep whatever else they hold."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transduce.cli.lines import LineBatch
from transduce.data.tables import one_a_line
from transduce.errors import DataError, RunError, SettingError
from transduce.limits import from_json

if TYPE_CHECKING:
    from transduce.decoding.options import DecodingOptions

SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Records:
    """The records of consecutive lines, up to the first line that is none."""

    items: list[dict[str, Any] | None]
    """None for a blank line."""
    error: DataError | None
    """What is wrong with the line after them, if they had to end there."""

    names: tuple[str, ...]
    """Fields that make an input."""

    @property
    def inputs(self) -> list[tuple[str, ...]]:
        """The texts of each record."""
        # JSON can spell half a character, "\ud800", which no tokenizer can take.
        return [
            tuple("" if r is None else SURROGATE.sub("\ufffd", r[name]) for name in self.names)
            for r in self.items
        ]

    def answered(self, answers: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Each record as a line, with the fields of its answer put in."""
        for record, fields in zip(self.items, answers, strict=True):
            if record is None:
                yield ""
                continue
            record.update(fields)
            line = json.dumps(record, ensure_ascii=False)
            yield json.dumps(record) if SURROGATE.search(line) else line


def read_records(batch: LineBatch, name: str, fields: tuple[str, ...]) -> Records:
    """The records of a batch of lines; `name` is the input's, for messages.

    fields: the names that a record must have.
    """
    items: list[dict[str, Any] | None] = []
    for number, line in enumerate(batch.lines, batch.first + 1):
        try:
            items.append(_record(line, fields))
        except ValueError as error:
            return Records(items, DataError(f"{name}: line {number} {error}"), fields)
    return Records(items, None, fields)


def with_options(
    records: Records,
    batch: LineBatch,
    name: str,
    base: DecodingOptions,
    check: Callable[[DecodingOptions], None],
) -> tuple[Records, list[DecodingOptions]]:
    """How each record is to be decoded: as `base` says, and as its own fields say otherwise.

    The records end before the first whose options cannot be; check: what else to ask of options.
    """
    from transduce.decoding.options import DecodingOptions

    names = {field.name for field in dataclasses.fields(DecodingOptions)}
    found: list[DecodingOptions] = []
    for number, record in enumerate(records.items, batch.first + 1):
        given = {key: value for key, value in (record or {}).items() if key in names}
        try:
            found.append(_laid_over(base, given) if given else base)
            check(found[-1])
        except (SettingError, RunError) as error:
            items = records.items[: number - batch.first - 1]
            wrong = DataError(f"{name}: line {number}: {error}")
            return Records(items, wrong, records.names), found[: len(items)]
    return records, found


def _laid_over(base: DecodingOptions, given: Mapping[str, Any]) -> DecodingOptions:
    """Options with some given otherwise; a beam too narrow for what it is to give is widened.

    Raises SettingError naming the one that cannot be.
    """
    from transduce.config import parse, to_dict
    from transduce.decoding.options import DecodingOptions

    settings = {**to_dict(base), **given}
    count, width = settings["n_best"], settings["beam_size"]
    if isinstance(count, int) and isinstance(width, int) and "beam_size" not in given:
        settings["beam_size"] = max(count, width)
    return parse(DecodingOptions, settings)


def split_input(line: str, names: tuple[str, ...], place: str) -> tuple[str, ...]:
    """The parts of an input that a line holds between tabs; the last one may hold tabs.

    Raises DataError naming the place of a line with too few.
    """
    parts = tuple(line.split("\t", len(names) - 1))
    if len(parts) < len(names) and line.strip():
        raise DataError(
            f"{place} needs {' and '.join(names)} with a tab between, not {line[:40]!r}"
        )
    return parts if len(parts) == len(names) else ("",) * len(names)


def _record(line: str, fields: tuple[str, ...]) -> dict[str, Any] | None:
    """Raises ValueError saying what the line is instead of a record."""
    if not line.strip():
        return None
    example = "{" + ", ".join(f'"{field}": "..."' for field in fields) + "}"
    try:
        record = from_json(line)
        json.dumps(record, allow_nan=False)  # Python reads NaN and 1e999, which JSON has not
    except ValueError as error:
        reason = getattr(error, "msg", str(error))
        remedy = one_a_line(line) or f"; write {example}"
        raise ValueError(f"is not JSON ({reason}){remedy}") from None
    if not isinstance(record, dict):
        raise ValueError(f"is not a JSON object{one_a_line(line) or f'; write {example}'}")
    for field in fields:
        if not isinstance(record.get(field), str):
            raise ValueError(f'has no "{field}" that is a string')
    return record
