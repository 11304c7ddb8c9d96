"""Memory: translations that are there already, in the document itself or in other files."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from transduce.localise.checks import PLURAL, checked
from transduce.localise.document import Document, Segment
from transduce.localise.inline import escaped, from_markup, parts_of, with_tags


def with_matches(document: Document, memory: Iterable[Segment] = ()) -> Document:
    """The document whose segments without a translation have that of a segment with the same text
    and as many tags, of the document, else of a memory, if it keeps their placeholders."""
    known: dict[tuple[str, ...], Segment] = {}
    for segment in (*document.segments, *memory):
        if segment.state == "translated" and segment.target and not segment.key.endswith(PLURAL):
            known.setdefault(_texts(segment), segment)
    segments = []
    for segment in document.segments:
        match = known.get(_texts(segment)) if segment.state != "translated" else None
        if match is not None and not segment.key.endswith(PLURAL):
            target = _moved(match, segment)
            (record,) = checked([dataclasses.replace(segment, target=target)])
            segment = dataclasses.replace(segment, match=target if record.is_done else "")
        segments.append(segment)
    return dataclasses.replace(document, segments=segments)


def _texts(segment: Segment) -> tuple[str, ...]:
    """The texts of a source between its tags, as a reader sees them."""
    parts = parts_of(segment.source, segment.tags)
    return tuple(
        "\0" if is_tag else from_markup(part) if segment.markup else part for is_tag, part in parts
    )


def _moved(match: Segment, segment: Segment) -> str:
    """The target of a segment with the tags of another, in its form."""

    def write(part: str) -> str:
        text = from_markup(part) if match.markup else part
        return escaped(text) if segment.markup else text

    return with_tags(match.target, match.tags, segment.tags, write)
