"""Memory: translations that are there already, in the document itself or in other files."""

import dataclasses
import re
from collections.abc import Iterable, Mapping

from transduce.localise.checks import PLURAL, checked
from transduce.localise.document import Document, Segment
from transduce.localise.inline import escaped, from_markup, parts_of, with_tags

MEMORY_NUMBER = re.compile(r"(?<![\w%{$])\d+(?![\w$}])")
"""A number that is no part of a word or placeholder."""
EQUAL = "as an equal segment"
RENUMBERED = "as an equal segment with other numbers"


def with_matches(document: Document, memory: Iterable[Segment] = ()) -> Document:
    """The document whose segments without a translation have that of a segment with the same text
    and as many tags, of the document, confirmed ones first, else of a memory, if it keeps their
    placeholders; else that of one which differs in its numbers, which are put in."""
    known: dict[tuple[str, ...], Segment] = {}
    for segment in (*document.confirmed, *document.segments, *memory):
        if segment.state == "translated" and segment.target and not segment.key.endswith(PLURAL):
            texts = memory_texts(segment)
            known.setdefault(texts, segment)
            known.setdefault(_without_numbers(texts), segment)
    segments = []
    for segment in document.segments:
        if segment.state != "translated" and not segment.key.endswith(PLURAL):
            segment = _with_match(segment, known)
        segments.append(segment)
    return dataclasses.replace(document, segments=segments)


def _with_match(segment: Segment, known: Mapping[tuple[str, ...], Segment]) -> Segment:
    texts = memory_texts(segment)
    match, origin = known.get(texts), EQUAL
    if match is None and (match := known.get(_without_numbers(texts))):
        match, origin = _renumbered(match, texts), RENUMBERED
    if match is None:
        return segment
    target = moved(match, segment)
    (record,) = checked([dataclasses.replace(segment, target=target)])
    return dataclasses.replace(segment, match=target, origin=origin) if record.is_done else segment


def _without_numbers(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(MEMORY_NUMBER.sub("\1", text) for text in texts)


def _renumbered(match: Segment, texts: Iterable[str]) -> Segment | None:
    """A segment of a memory with the numbers of some texts in its target; None if it does not have
    each of its own once on both sides."""
    before, after = (
        MEMORY_NUMBER.findall("\n".join(each)) for each in (memory_texts(match), texts)
    )
    parts = list(parts_of(match.target, match.tags))
    there = [
        number for is_tag, part in parts if not is_tag for number in MEMORY_NUMBER.findall(part)
    ]
    if len(set(before)) < len(before) or sorted(there) != sorted(before):
        return None
    numbers = dict(zip(before, after, strict=True))
    target = "".join(
        part if is_tag else MEMORY_NUMBER.sub(lambda number: numbers[number[0]], part)
        for is_tag, part in parts
    )
    return dataclasses.replace(match, target=target)


def memory_texts(segment: Segment) -> tuple[str, ...]:
    """The texts of a source between its tags, as a reader sees them."""
    parts = parts_of(segment.source, segment.tags)
    return tuple(
        "\0" if is_tag else from_markup(part) if segment.markup else part for is_tag, part in parts
    )


def moved(match: Segment, segment: Segment) -> str:
    """The target of a segment with the tags of another, in its form."""

    def write(part: str) -> str:
        text = from_markup(part) if match.markup else part
        return escaped(text) if segment.markup else text

    return with_tags(match.target, match.tags, segment.tags, write)
