"""Translation of segments and documents through several runs in turn, as rounds of orders."""

import dataclasses
from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeVar

from transduce.localise.document import (
    Check,
    LocalisedDocument,
    Reading,
    Record,
    Segment,
    document_with,
    unchecked,
    untranslated_record,
)
from transduce.localise.formats import read_document
from transduce.localise.html import read_html
from transduce.localise.inline import parts_of
from transduce.localise.memory import with_matches
from transduce.localise.translate import Answer, Order, Work, localisation

T = TypeVar("T")

Round = tuple[int, list[Order]]
"""Index of a leg, and orders for its run."""
Rounds = Generator[Round, list[Answer], T]
"""Work that sends rounds, and receives the answers to the orders of each, in order."""


class Leg(NamedTuple):
    """Languages of a run on the way, by code; can_align: its alignments are answered."""

    source: str
    target: str | None
    can_align: bool


class Path(NamedTuple):
    """The runs between two languages, in order; without any, texts stay, for the `reason`."""

    legs: Sequence[Leg]
    reason: str = ""


def pivoted(
    segments: Sequence[Segment], path: Path, check: Check = unchecked
) -> Rounds[tuple[list[Record], list[str]]]:
    """Records of segments, and the texts that the last run has read for them.

    A segment that one of the runs cannot translate stays as it was.

    path: runs in their order.  check: called between steps; raises an error to end the work.
    """
    read = [segment.source for segment in segments]
    if path.reason:
        return [untranslated_record(s.key, s.source, path.reason) for s in segments], read
    records = [Record(s.key, s.source, s.source, "translated") for s in segments]
    for number, leg in enumerate(path.legs):
        going = [i for i, record in enumerate(records) if record.is_done]
        onward = [_onward(segments[i], records[i].target) for i in going]
        work = localisation(onward, leg.source, leg.can_align, check, leg.target)
        for i, record in zip(going, (yield from _rounds(number, work)), strict=True):
            segment, read[i] = segments[i], records[i].target
            reason = record.reason or records[i].reason
            records[i] = (
                Record(segment.key, segment.source, record.target, "translated", reason)
                if record.is_done
                else untranslated_record(segment.key, segment.source, record.reason)
            )
    return records, read


def _onward(segment: Segment, text: str) -> Segment:
    """A segment with its translation as the source, for the next run."""
    tags = tuple(part for is_tag, part in parts_of(text, segment.tags) if is_tag)
    return dataclasses.replace(segment, source=text, tags=tags)


def _rounds(number: int, work: Work[T]) -> Rounds[T]:
    try:
        orders = next(work)
        while True:
            orders = work.send((yield number, orders))
    except StopIteration as stop:
        result: T = stop.value
        return result


def pivoted_pages(
    contents: Sequence[bytes], path: Path, check: Check = unchecked
) -> Rounds[list[LocalisedDocument]]:
    """Translations of fragments of HTML.

    contents: bytes in UTF-8.  path: runs in their order.  check: called between steps; raises an
    error to end the work.
    """
    pages = [read_html(content, Reading("utf-8", check)) for content in contents]
    segments = [segment for page in pages for segment in page.segments]
    records, _ = yield from pivoted(segments, path, check)
    each = iter(records)
    return [document_with(page, [next(each) for _ in page.segments], check) for page in pages]


def pivoted_document(
    name: str, content: bytes, target: str, path: Path
) -> Rounds[LocalisedDocument]:
    """Translation of a file, whose translated segments stay; without an error where nothing is
    done.  Raises DataError as `read_document`.

    name: of the file, for its suffix.  content: its bytes.  target: code of the target language.
    path: runs in their order.
    """
    source = path.legs[0].source if path.legs else None
    read = read_document(name, content, source_language=source, target_language=target)
    document = with_matches(read).limited(["missing"])
    records, _ = yield from pivoted(document.segments, path)
    return document_with(document, records)


def sample_of(name: str, content: bytes, target: str, length: int) -> Rounds[str]:
    """The first characters of the texts of a file.  Raises DataError as `read_document`.

    name: of the file, for its suffix.  content: its bytes.  target: code of the target language.
    length: in characters.
    """
    yield from ()
    segments = read_document(name, content, target_language=target).segments
    return "\n".join(segment.source for segment in segments[:length])[:length]
