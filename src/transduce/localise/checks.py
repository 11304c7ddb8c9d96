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
from transduce.localise.document import Segment, Written
from transduce.localise.icu import has_choice, parse_message
from transduce.localise.inline import from_markup, parts_of
from transduce.localise.patterns import MARKS
from transduce.localise.placeholders import protect
from transduce.localise.reader_checks import Fault, placeholder_faults, protected_pair
from transduce.localise.record import Record, untranslated
from transduce.localise.surface import surface_faults
from transduce.localise.terms import Glossary, as_words

NUMBER = re.compile(r"\d+(?:[.,'’\u00a0\u202f ]\d{3}(?!\d))*")
ACCENTED = str.maketrans(
    string.ascii_letters, "áƀćđéƒǧĥíĵķłɱñóƥɋŕšţúṽŵẋýžÁɃĆĐÉƑǦĤÍĴĶŁṀÑÓƤɊŔŠŢÚṼŴẊÝŽ"
)
SIGN = "\ufffc"
"""Sign in place of a placeholder."""
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
    if has_choice(segment.source, segment.tags):
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


Faults = Callable[[Segment, Written], Iterator[Fault]]
"""Faults of a translation of a segment."""


def checked(segments: Sequence[Segment], faults: Faults | None = None) -> list[Record]:
    """A record for each translation in a document; one with a fatal fault is not done, and the
    reason of any other names its warnings.

    faults: by default the fatal ones of placeholders and tags.  The singular of a plural may be as
    its plural.
    """
    records = []
    for _, group in itertools.groupby(segments, lambda segment: segment.key.removesuffix(PLURAL)):
        forms = list(group)
        for segment in forms:
            if not segment.target:
                continue
            sources = [segment] if segment.key.endswith(PLURAL) else forms
            record = Record(segment.key, segment.source, segment.target, "translated")
            for written in segment.translations:
                outcome = _outcome(sources, written, faults or broken)
                if any(fault.is_fatal for fault in outcome):
                    record = dataclasses.replace(record, state="needs-translation", reason="")
                    outcome = [fault for fault in outcome if fault.is_fatal]
                reasons = [record.reason, *(fault.text for fault in outcome)]
                reason = "; ".join(dict.fromkeys(filter(None, reasons)))
                record = dataclasses.replace(record, reason=reason)
                if not record.is_done:
                    break
            records.append(record)
    return records


def _outcome(sources: Sequence[Segment], written: Written, faults: Faults) -> list[Fault]:
    """Faults beside the source of which a translation has none, or else the first."""
    outcomes = [list(faults(source, written)) for source in sources]
    held = (faults for faults in outcomes if not any(fault.is_fatal for fault in faults))
    return next(held, outcomes[0])


def broken(segment: Segment, written: Written) -> Iterator[Fault]:
    """The first fatal fault of the placeholders and tags of a translation."""
    faults = _reader_faults(segment, written)
    return itertools.islice((fault for fault in faults if fault.is_fatal), 1)


def _reader_faults(segment: Segment, written: Written) -> Iterator[Fault]:
    yield from placeholder_faults(segment, written.text, written.is_rare)
    ends_line = segment.around[1].endswith("\n")
    if segment.written and ends_line != written.text.endswith("\n"):
        fault = "missing" if ends_line else "not in the source"
        yield Fault(f"the line break at the end is {fault}")


def faults_by(glossary: Glossary) -> Faults:
    """All faults of a translation: the first fatal one of placeholders, else those of numbers,
    terms and its length, and warnings."""

    def faults(segment: Segment, written: Written) -> Iterator[Fault]:
        by_reader = list(_reader_faults(segment, written))
        if fatal := next((fault for fault in by_reader if fault.is_fatal), None):
            yield fatal
            return
        yield from by_reader
        source, text = _bare(segment, written.text)
        if not written.is_rare:
            for number in _numbers(source) - _numbers(text):
                yield Fault(f"the number {number} is missing")
        for forms in glossary(source):
            forms = (forms,) if isinstance(forms, str) else forms
            if not re.search("|".join(map(as_words, forms)), text, re.IGNORECASE):
                yield Fault(f"the term {forms[0]} is missing")
        yield from map(Fault, too_long(segment, segment.target))
        before, after = segment.around
        yield from (Fault(f, False) for f in surface_faults(f"{before}{source}{after}", text))

    return faults


def _bare(segment: Segment, text: str) -> tuple[str, str]:
    """A source and its translation with one sign for each placeholder; of a message with a text for
    each case as they are."""
    if has_choice(segment.source, segment.tags):
        return segment.source, segment.source
    source, translated = protected_pair(segment, text)
    return re.sub(f"[{MARKS}]", SIGN, source.text), re.sub(f"[{MARKS}]", SIGN, translated.text)


def too_long(segment: Segment, target: str) -> Iterator[str]:
    """The fault of a target with more characters than its format allows, tags left out."""
    parts = parts_of(target, segment.tags)
    texts = (part for is_tag, part in parts if not is_tag)
    length = sum(len(from_markup(text) if segment.markup else text) for text in texts)
    if segment.limit and length > segment.limit:
        yield f"the translation has {length} characters, of at most {segment.limit}"


def _numbers(text: str) -> Counter[str]:
    """Digits of the numbers of a text, whatever stands between thousands."""
    return Counter(
        "".join(str(unicodedata.digit(c, "")) for c in number[0]).lstrip("0") or "0"
        for number in NUMBER.finditer(text)
    )
