"""Translations that need no model: checks of those in a document, and pseudo-translations."""

from __future__ import annotations

import dataclasses
import itertools
import string
from collections.abc import Iterator, Sequence

from transduce.errors import DataError
from transduce.localise.document import Segment
from transduce.localise.icu import HEAD, parse_message
from transduce.localise.inline import from_markup, parts_of
from transduce.localise.placeholders import check_kept, protect
from transduce.localise.record import Record, untranslated

ACCENTED = str.maketrans(
    string.ascii_letters, "áƀćđéƒǧĥíĵķłɱñóƥɋŕšţúṽŵẋýžÁɃĆĐÉƑǦĤÍĴĶŁṀÑÓƤɊŔŠŢÚṼŴẊÝŽ"
)
PLURAL = ", plural"
"""End of the keys of plurals."""


def pseudo_translated(segments: Sequence[Segment]) -> list[Record]:
    """Segments in brackets with accents on their letters, placeholders as they are: shows what of
    a program is translated, and whether longer texts and other letters fit."""
    records = []
    for segment in segments:
        try:
            text = _pseudo(segment)
            records.append(Record(segment.key, segment.source, text, "translated"))
        except DataError as error:
            records.append(untranslated(segment.key, segment.source, str(error)))
    return records


def _pseudo(segment: Segment) -> str:
    if HEAD.search(segment.source):
        message = parse_message(segment.source)
        flags = segment.flags | {"icu"}
        texts = (_accented(text, segment, flags) for text in message.texts())
        return message.with_texts(texts, None)
    return _accented(segment.source, segment, segment.flags)


def _accented(text: str, segment: Segment, flags: frozenset[str]) -> str:
    tags = [part for is_tag, part in parts_of(text, segment.tags) if is_tag]
    source = protect(text, tags, segment.markup, flags)
    accented = "".join(c if c in source.names else c.translate(ACCENTED) for c in source.text)
    return source.restored(f"[{accented}]")


def checked(segments: Sequence[Segment]) -> list[Record]:
    """A record for each translation in a document; one with a fault is not done, for a reason.

    The singular of a plural may have the placeholders of its plural.
    """
    records = []
    for _, group in itertools.groupby(segments, lambda segment: segment.key.removesuffix(PLURAL)):
        forms = list(group)
        for segment in forms:
            if not segment.target:
                continue
            is_plural = segment.key.endswith(PLURAL)
            sources = [segment] if is_plural else forms
            reason = next(iter(_faults(sources, segment.target)), "")
            record = Record(segment.key, segment.source, segment.target, "translated")
            if reason:
                record = dataclasses.replace(record, state="needs-translation", reason=reason)
            records.append(record)
    return records


def _faults(sources: Sequence[Segment], target: str) -> Iterator[str]:
    """The fault of a target in its first source, if each of the sources finds one."""
    faults = []
    for segment in sources:
        if HEAD.search(segment.source):
            return
        try:
            source = protect(segment.source, segment.tags, segment.markup, segment.flags)
            parts = parts_of(target, segment.tags)
            text = "".join(
                part if is_tag or not segment.markup else from_markup(part)
                for is_tag, part in parts
            )
            check_kept(source, source.marked(text))
            return
        except DataError as error:
            faults.append(str(error))
    yield faults[0]
