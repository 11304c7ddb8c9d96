"""Translations that need no model: checks of those in a document, and pseudo-translations."""

from __future__ import annotations

import dataclasses
import itertools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from transduce.errors import DataError
from transduce.localise.document import Segment
from transduce.localise.icu import HEAD, parse_message
from transduce.localise.inline import from_markup, parts_of
from transduce.localise.patterns import MARKS
from transduce.localise.placeholders import check_kept, protect
from transduce.localise.record import Record, untranslated
from transduce.localise.terms import Glossary, as_words

NUMBER = re.compile(r"\d+(?:[.,'’\u00a0\u202f ]\d{3}(?!\d))*")
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


Faults = Callable[[Segment, str], Iterator[str]]
"""Faults of a target of a segment."""


def checked(segments: Sequence[Segment], faults: Faults | None = None) -> list[Record]:
    """A record for each translation in a document; one with a fault is not done, for a reason.

    faults: by default those of placeholders and tags.  The singular of a plural may be as its
    plural.
    """
    records = []
    for _, group in itertools.groupby(segments, lambda segment: segment.key.removesuffix(PLURAL)):
        forms = list(group)
        for segment in forms:
            if not segment.target:
                continue
            is_plural = segment.key.endswith(PLURAL)
            sources = [segment] if is_plural else forms
            reasons = ["; ".join((faults or broken)(form, segment.target)) for form in sources]
            record = Record(segment.key, segment.source, segment.target, "translated")
            if all(reasons):
                record = dataclasses.replace(record, state="needs-translation", reason=reasons[0])
            records.append(record)
    return records


def broken(segment: Segment, target: str) -> Iterator[str]:
    """The fault of the placeholders and tags of a target."""
    try:
        _marked(segment, target)
    except DataError as error:
        yield str(error)


def faults_by(glossary: Glossary) -> Faults:
    """All faults of a target: of placeholders and tags, else of numbers, terms and its length."""

    def faults(segment: Segment, target: str) -> Iterator[str]:
        try:
            marked = _marked(segment, target)
        except DataError as error:
            yield str(error)
            return
        source, text = (re.sub(f"[{MARKS}]", " ", part) for part in marked or ("", ""))
        for number in _numbers(source) - _numbers(text):
            yield f"the number {number} is missing"
        for forms in glossary(source):
            forms = (forms,) if isinstance(forms, str) else forms
            if not re.search("|".join(map(as_words, forms)), text, re.IGNORECASE):
                yield f"the term {forms[0]} is missing"
        yield from too_long(segment, target)

    return faults


def too_long(segment: Segment, target: str) -> Iterator[str]:
    """The fault of a target with more characters than its format allows, tags left out."""
    parts = parts_of(target, segment.tags)
    texts = (part for is_tag, part in parts if not is_tag)
    length = sum(len(from_markup(text) if segment.markup else text) for text in texts)
    if segment.limit and length > segment.limit:
        yield f"the translation has {length} characters, of at most {segment.limit}"


def _marked(segment: Segment, target: str) -> tuple[str, str] | None:
    """A source and its target with marks; None of a message of ICU.  Raises DataError for the
    faults of `check_kept`."""
    if HEAD.search(segment.source):
        return None
    source = protect(segment.source, segment.tags, segment.markup, segment.flags)
    text = "".join(
        part if is_tag or not segment.markup else from_markup(part)
        for is_tag, part in parts_of(target, segment.tags)
    )
    text = source.marked(text)
    check_kept(source, text)
    return source.text, text


def _numbers(text: str) -> Counter[str]:
    """Digits of the numbers of a text, whatever stands between thousands."""
    return Counter(
        "".join(str(unicodedata.digit(c, "")) for c in number[0]).lstrip("0") or "0"
        for number in NUMBER.finditer(text)
    )
