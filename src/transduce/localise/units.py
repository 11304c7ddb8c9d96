"""Units: parts of a document that are written together, of formats made of messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import DecodedText, Document, Edit, Segment, Span
from transduce.localise.record import Record

BREAK = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f\ufffe\uffff]")


class Unit(NamedTuple):
    """Segments that are written together: the forms of a plural, the sentences of a message.

    write: edits for the targets of some of them, by key.  Raises DataError.
    """

    segments: Sequence[Segment]
    write: Callable[[Mapping[str, str]], Iterable[Edit]]


def document_of(
    decoded: DecodedText,
    units: Sequence[Unit],
    language_spans: Sequence[Span] = (),
    unread: Sequence[Record] = (),
) -> Document:
    """The document of some units.  Line breaks of targets become `\\n`; control characters are
    refused."""
    unit_of = {segment.key: unit for unit in units for segment in unit.segments}

    def render(targets: Mapping[str, str]) -> Iterator[Edit]:
        by_unit: dict[int, dict[str, str]] = {}
        for key, target in targets.items():
            if control := CONTROL.search(target):
                raise DataError(f"{key}: the file cannot hold {control[0]!r}; remove it")
            by_unit.setdefault(id(unit_of[key]), {})[key] = BREAK.sub("\n", target)
        for texts in by_unit.values():
            yield from unit_of[next(iter(texts))].write(texts)

    segments = [segment for unit in units for segment in unit.segments]
    return Document(segments, decoded, render, language_spans=language_spans, unread=unread)


def framed(text: str) -> tuple[str, str, str]:
    """A text without its outer white space, which is before and after it."""
    core = text.strip()
    start = text.index(core)
    return text[:start], core, text[start + len(core) :]
