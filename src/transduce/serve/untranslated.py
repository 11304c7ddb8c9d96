"""Field and header of an answer for the texts that were not translated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse

from transduce.localise.record import Record
from transduce.serve.translator import Translated

HEADER = "Transduce-Untranslated"
"""Number of the lines, blocks or cues that an answer leaves as they were; absent for none."""

Left = Sequence[Mapping[str, object]]


def left_of_texts(translated: Iterable[Translated]) -> Left:
    """Index and reason of each line or block that was not translated, by the index of its text."""
    return [_shown(i, record) for i, text in enumerate(translated) for record in text.left]


def left_of_records(records: Iterable[Record]) -> Left:
    """The same for the segments of a document, or the sentences of a stream."""
    return [_shown(i, record) for i, record in enumerate(records) if not record.is_done]


def headers(left: Left) -> dict[str, str]:
    """The header of an answer."""
    return {HEADER: str(len(left))} if left else {}


def answer(content: Mapping[str, Any], left: Left) -> JSONResponse:
    """An answer in JSON with the field `untranslated` and its header, where texts are left."""
    more = {"untranslated": left} if left else {}
    return JSONResponse({**content, **more}, headers=headers(left))


def last_event(records: Iterable[Record]) -> dict[str, object]:
    """The last event of a stream whose sentences have these records."""
    left = left_of_records(records)
    return {"done": True, **({"untranslated": left} if left else {})}


def _shown(index: int, record: Record) -> dict[str, object]:
    return {"index": index, "reason": f"{record.key}: {record.reason}"}
