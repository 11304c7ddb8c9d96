"""Inputs of `predict` and `translate`: lines, or JSON records that keep whatever else they hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transduce.cli.lines import LineBatch
from transduce.errors import DataError

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
        record = json.loads(line)
    except RecursionError:
        raise ValueError("is JSON nested too deeply") from None
    except ValueError as error:
        reason = getattr(error, "msg", str(error))
        raise ValueError(f"is not JSON ({reason}); write {example}") from None
    if not isinstance(record, dict):
        raise ValueError(f"is not a JSON object; write {example}")
    for field in fields:
        if not isinstance(record.get(field), str):
            raise ValueError(f'has no "{field}" that is a string')
    return record
