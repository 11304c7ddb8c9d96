"""JSON lines in and out of `translate`: a record keeps whatever else it holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transduce.cli.lines import LineBatch
from transduce.errors import DataError

if TYPE_CHECKING:
    from transduce.tasks.translator import Translation

SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Records:
    """The records of consecutive lines, up to the first line that is none."""

    items: list[dict[str, Any] | None]
    """None for a blank line."""
    error: DataError | None
    """What is wrong with the line after them, if they had to end there."""

    @property
    def sources(self) -> list[str]:
        """The text of each record."""
        # JSON can spell half a character, "\ud800", which no tokenizer can take.
        return ["" if r is None else SURROGATE.sub("\ufffd", r["source"]) for r in self.items]

    def answered(self, found: Sequence[Translation], n_best: int) -> Iterator[str]:
        """Each record as a line, with its translation put in; n_best > 1 adds the candidates."""
        for record, translation in zip(self.items, found, strict=True):
            if record is None:
                yield ""
                continue
            record["translation"] = translation.text
            record["score"] = translation.score
            record["tokens"] = translation.tokens
            if n_best > 1:
                record["n_best"] = [
                    {"text": c.text, "score": c.score} for c in translation.candidates
                ]
            line = json.dumps(record, ensure_ascii=False)
            yield json.dumps(record) if SURROGATE.search(line) else line


def read_records(batch: LineBatch, name: str) -> Records:
    """The records of a batch of lines; `name` is the input's, for messages."""
    items: list[dict[str, Any] | None] = []
    for number, line in enumerate(batch.lines, batch.first + 1):
        try:
            items.append(_record(line))
        except ValueError as error:
            return Records(items, DataError(f"{name}: line {number} {error}"))
    return Records(items, None)


def _record(line: str) -> dict[str, Any] | None:
    """Raises ValueError saying what the line is instead of a record."""
    if not line.strip():
        return None
    try:
        record = json.loads(line)
    except RecursionError:
        raise ValueError("is JSON nested too deeply") from None
    except ValueError as error:
        reason = getattr(error, "msg", str(error))
        raise ValueError(f'is not JSON ({reason}); write {{"source": "..."}}') from None
    if not isinstance(record, dict):
        raise ValueError('is not a JSON object; write {"source": "..."}')
    if not isinstance(record.get("source"), str):
        raise ValueError('has no "source" that is a string')
    return record
