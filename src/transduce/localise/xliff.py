"""XLIFF 1.2, with states of SDL Trados and memoQ, as a document and as an exchange with people.

A document is a `file`, a segment a `trans-unit` by its key.  Tags are codes (`bpt`, `ept`, `ph`)
with numbers as their ids, which tools keep whatever else they rewrite.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import PurePath
from typing import NamedTuple, NoReturn

from transduce.errors import DataError
from transduce.localise.checks import checked
from transduce.localise.document import (
    DecodedText,
    Document,
    Edit,
    Reading,
    Record,
    Segment,
    Span,
    State,
    parsed,
    partners,
    untranslated_record,
)
from transduce.localise.inline import from_markup, parts_of, with_tags
from transduce.localise.languages import names_language, of_other_languages
from transduce.localise.lock import Named, changed, matched
from transduce.localise.units import Unit, document_of, shortened
from transduce.localise.xml import ATTRIBUTE, Element, Text, blank_before, read_xml, xml_text

XLIFF_OPAQUE = ("bpt", "ept", "ph", "it", "x", "bx", "ex", "sc", "ec", "cp", "sm", "em")
"""Inline elements that are codes as a whole."""
UNFINISHED = ("new", "rejected", "unreviewed", "initial", "needs", "draft", "unspecified")
"""Beginnings of states, in lower case, of translations that wait for a review."""
CONFIRMED = ("final", "signed-off", "approvedtranslation", "approvedsignoff", "manuallyconfirmed")
COPIED = ("", "new", "initial", "needs-translation", "notstarted")
"""States in which a target that equals its source is no translation."""
REVIEW = "needs-review-translation"


class Pair(NamedTuple):
    """A source with the element of its target, if there is one, and of its state."""

    key: str
    source: Text
    target: Element | None
    holder: Element | None
    mark: str = ""


def read_xliff(decoded: DecodedText, root: Element, reading: Reading) -> Document:
    """Read the units of a document; those not to be translated are left, and what is locked or
    approved is confirmed.

    decoded: text of the file.  root: element of the document.  reading: languages.
    """
    is_second = root.get("version").startswith("2")
    units: list[Unit] = []
    confirmed: list[Segment] = []
    references: dict[str, str] = {}
    left, language, unread = _languages(root, is_second, reading)
    for number, element in enumerate(_xliff_units(root, True), 1):
        reading.check()
        if any(span.start < element.begin < span.end for span in left):
            continue
        key = shortened(element.get("id") or element.get("resname"))
        name = f"unit {number} ({key})" if key else f"unit {number}"
        if is_second:
            layouts = [
                _XliffLayout(decoded, part, f"{name}, segment {i}" if i > 1 else name, references)
                for i, part in enumerate(element.children, 1)
                if part.local_name == "segment"
            ]
        else:
            layouts = [_XliffLayout(decoded, element, name, references)]
        for layout in layouts:
            if segments := layout.segments(confirmed):
                units.append(Unit(segments, layout.edits))
    return document_of(decoded, units, language, unread, confirmed)


def _languages(
    root: Element, is_second: bool, reading: Reading
) -> tuple[list[Span], list[Edit], list[Record]]:
    """Files of other languages, edits of those that name no target language, and records."""
    left: list[Span] = []
    edits: list[Edit] = []
    unread: list[Record] = []
    files = [child for child in root.children if child.local_name == "file"]
    source, target = ("srcLang", "trgLang") if is_second else ("source-language", "target-language")
    for number, element in enumerate([root] if is_second else files, 1):
        own = element.get(target)
        if others := of_other_languages(reading, element.get(source), own):
            left.append(element.span)
            key = "language" if len(files) == 1 or is_second else f"language of file {number}"
            unread += [dataclasses.replace(record, key=key) for record in others]
        elif reading.language and not names_language(own):
            edits.append(element.with_attribute(target, reading.language))
    return left, edits, unread


def _xliff_units(parent: Element, translated: bool) -> Iterator[Element]:
    for child in parent.children:
        if child.local_name in ("file", "body", "group", "trans-unit", "unit"):
            flag = child.get("translate", "yes" if translated else "no")
            if child.local_name not in ("trans-unit", "unit"):
                yield from _xliff_units(child, flag != "no")
            elif flag != "no":
                yield child


class _XliffLayout:
    """A unit: its elements, and how its targets are written."""

    __slots__ = ("decoded", "is_second", "pairs", "segmented", "source", "states", "target", "unit")

    def __init__(
        self, decoded: DecodedText, unit: Element, name: str, references: dict[str, str]
    ) -> None:
        self.decoded = decoded
        self.unit = unit
        self.is_second = unit.local_name == "segment"
        self.source = unit.child("source")
        self.segmented = unit.child("seg-source")
        self.target = unit.child("target")
        definitions = unit.child("seg-defs")
        self.states = {e.get("id"): e for e in definitions.children} if definitions else {}
        self.pairs: dict[str, Pair] = {}
        if self.source is None:
            return
        marks = _marks(self.segmented)
        targets = _marks(self.target)
        has_words = self.target is not None and xml_text(self.target, XLIFF_OPAQUE, {}).has_words
        if not has_words and not marks.keys() <= targets.keys():
            targets = {}  # the target is written anew
        for mid, element in marks.items():
            if has_words and mid not in targets:
                continue  # segmented in another way
            text = xml_text(element, XLIFF_OPAQUE, references)
            holder = self.states.get(mid, unit)
            key = shortened(f"{name}, {mid}") if len(marks) > 1 else name
            self._add(Pair(key, text, targets.get(mid), holder, mid))
        if not marks:
            text = xml_text(self.source, XLIFF_OPAQUE, references)
            self._add(Pair(name, text, self.target, unit))

    def _add(self, pair: Pair) -> None:
        if pair.source.has_words:
            self.pairs[pair.key] = pair

    def segments(self, confirmed: list[Segment]) -> Sequence[Segment]:
        """Segments of all but locked and approved pairs, whose translations go to `confirmed`."""
        segments = []
        for pair in self.pairs.values():
            text = None if pair.target is None else xml_text(pair.target, XLIFF_OPAQUE, {})
            target = text.source if text and text.has_words else ""
            state = self._state(pair)
            is_locked = self.unit.get("mq:locked") == "locked" or (
                pair.holder is not None and pair.holder.get("locked") == "true"
            )
            is_approved = state in CONFIRMED or self.unit.get("approved") == "yes"
            kind: State = "fuzzy" if state.startswith(UNFINISHED) else "translated"
            if not target or (target == pair.source.source and state in COPIED and state):
                kind = "missing"
            source, tags = pair.source.source, pair.source.tags
            spans = (self.unit.span,)
            limit = self._limit()
            segment = Segment(
                pair.key, source, spans, tags, True, target=target, state=kind, limit=limit
            )
            if target and is_approved:
                confirmed.append(dataclasses.replace(segment, state="translated"))
            elif is_locked:
                confirmed += [segment] if kind == "translated" else []
            else:
                segments.append(segment)
        return segments

    def _limit(self) -> int:
        """The most characters of a target of the unit alone, or 0."""
        in_characters = len(self.pairs) == 1 and self.unit.get("size-unit") == "char"
        width = self.unit.get("maxwidth") if in_characters else ""
        return int(width) if re.fullmatch("[0-9]{1,9}", width) else 0

    def _state(self, pair: Pair) -> str:
        """The state of a pair, in lower case."""
        if pair.mark in self.states:
            return self.states[pair.mark].get("conf", "draft").lower()
        if status := self.unit.get("mq:status"):
            return status.lower()
        holder = self.unit if self.is_second else self.target
        return (holder.get("state") if holder else "").lower()

    def edits(self, targets: Mapping[str, str]) -> Iterator[Edit]:
        """Edits of targets and states."""
        assert self.source is not None
        texts: dict[str, str] = {}
        for key, target in targets.items():
            pair = self.pairs[key]
            raw = pair.source.written(key, target, self.decoded)
            if pair.target is None or not pair.mark:
                texts[pair.mark] = raw
            else:
                yield pair.target.with_content(raw)
            if pair.mark in self.states:
                yield self.states[pair.mark].with_attribute("conf", "Draft")
        if self.unit.get("approved") == "yes":
            yield self.unit.with_attribute("approved", "no")
        if self.unit.attribute("mq:status"):
            yield self.unit.with_attribute("mq:status", "Pretranslated")
        has_state = not (self.states or self.unit.attribute("mq:status") or self.is_second)
        if self.is_second:
            yield self.unit.with_attribute("state", "translated")
            if self.unit.attribute("subState"):
                yield self.unit.with_attribute("subState", "transduce:review")
        if has_state and self.target is not None:
            yield self.target.with_attribute("state", REVIEW)
        if texts:
            yield self._whole(texts, f' state="{REVIEW}"' if has_state else "")

    def _whole(self, texts: Mapping[str, str], state: str) -> Edit:
        """Edit of the whole target: of a unit in marks, a copy of its source with some texts."""
        assert self.source is not None
        last = self.segmented or self.source
        raw = texts.get("", "")
        if "" not in texts:
            raw, start = "", last.content.start
            for mid, element in _marks(self.segmented).items():
                raw += last.text[start : element.content.start] + texts.get(mid, "")
                start = element.content.end
            raw += last.text[start : last.content.end]
        if self.target is not None:
            return self.target.with_content(raw)
        name = self.source.name.replace("source", "target")
        end = last.span.end
        return Edit(
            Span(end, end),
            f"{blank_before(last)}<{name}{state}>{raw}</{name}>",
        )


def _marks(element: Element | None) -> dict[str, Element]:
    """Segments of a text that is cut into some, by their names."""
    return {
        mark.get("mid"): mark
        for mark in (element.descendants() if element else ())
        if mark.local_name == "mrk" and mark.get("mtype") == "seg"
    }


XLIFF_HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">"""
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
"""Characters that XML does not have."""
CODE = re.compile(r"</?(?:[\w.-]+:)?([\w.-]+)")


class Translations(NamedTuple):
    """Segments of a document with their records, in the same order."""

    name: str
    segments: Sequence[Segment]
    records: Sequence[Record]


def written_xliff(documents: Sequence[Translations], source: str, target: str) -> bytes:
    """The XLIFF file of some documents, without the characters that XML does not have.

    source, target: codes of their languages.
    """
    lines = [XLIFF_HEAD]
    for document in documents:
        lines.append(
            f'<file original="{_attribute(document.name)}" datatype="plaintext" '
            f'source-language="{_attribute(source)}" target-language="{_attribute(target)}"><body>'
        )
        for segment, record in zip(document.segments, document.records, strict=False):
            lines += _unit(segment, record)
        lines.append("</body></file>")
    return FORBIDDEN.sub("", "\n".join([*lines, "</xliff>\n"])).encode()


def _attribute(text: str) -> str:
    return re.sub("[\n\r\t]", lambda match: f"&#{ord(match[0])};", escape(text))


def _unit(segment: Segment, record: Record) -> Iterator[str]:
    yield f'<trans-unit id="{_attribute(segment.key)}" xml:space="preserve">'
    yield f"<source>{_coded(segment.source, segment)}</source>"
    if record.is_done:
        yield f'<target state="{REVIEW}">{_coded(record.target, segment)}</target>'
    if record.reason:
        yield f"<note>{escape(record.reason)}</note>"
    yield "</trans-unit>"


def _codes(tags: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """For each tag of a segment the tag, the name of its code, and the id."""
    pairs = partners([parsed(tag) for tag in tags])
    for i, tag in enumerate(tags):
        other = pairs.get(i)
        name = "ph" if other is None else "bpt" if i < other else "ept"
        yield tag, name, str(min(i, i if other is None else other) + 1)


def _coded(text: str, segment: Segment) -> str:
    """A text of a segment as content of XML."""
    codes = [
        f'<{name} id="{number}">{escape(tag, quote=False)}</{name}>'
        for tag, name, number in _codes(segment.tags)
    ]
    write = str if segment.markup else functools.partial(escape, quote=False)
    return with_tags(text, segment.tags, codes, write).replace("\r", "&#13;")


class _Unit(NamedTuple):
    """A unit, its source, and what it is found by."""

    named: Named
    element: Element
    source: Element


class Exchange:
    """An XLIFF file that came back: its units by document, in order."""

    def __init__(self, content: bytes) -> None:
        """Raises DataError if the content is not XML."""
        try:
            _, root = read_xml(content, Reading())
        except DataError as error:
            remedy = "--merge takes the XLIFF file of --xliff; for other formats give --memory"
            raise DataError(f"{error}; {remedy}") from None
        files = [element for element in root.children if element.local_name == "file"]
        self._files = {
            from_markup(element.get("original")): [
                _Unit(Named(from_markup(unit.get("id")), _compared(source)), unit, source)
                for unit in element.named("trans-unit")
                if (source := unit.child("source"))
            ]
            for element in files
        }
        self._languages = [
            (element.get("source-language"), element.get("target-language")) for element in files
        ]

    def languages(self, source: str | None, target: str | None) -> tuple[str | None, str | None]:
        """Codes of source and target, those of the file where they are None.  Raises DataError
        where the file has others."""
        languages = [source, target]
        for codes in self._languages:
            reading = Reading(language=languages[1], source=languages[0])
            if others := of_other_languages(reading, *codes):
                raise DataError(others[0].reason)
            languages = [
                known or (code if code and names_language(code) else None)
                for known, code in zip(languages, codes, strict=True)
            ]
        return languages[0], languages[1]

    def records(self, name: str, segments: Sequence[Segment]) -> list[Record]:
        """Translations of the segments of a document, found by their sources and neighbours; a
        further segment with the source of a unit has its translation.  One without a translation,
        or whose placeholders and tags it does not keep, is not done.

        Raises DataError if the file has none of the document.
        """
        units = self._units(name)
        before = [unit.named for unit in units]
        after = [Named(FORBIDDEN.sub("", s.key), _compared_segment(s)) for s in segments]
        links = matched(before, after)
        used = set(links)
        unlinked = {unit.named.key: unit for j, unit in enumerate(units) if j not in used}
        equal = {unit.named.text: unit for unit in reversed(units)}
        sources: dict[str, _Unit] = {}
        reasons: dict[str, str] = {}
        held = []
        near = changed(before, after, links)
        for segment, named, link, other in zip(segments, after, links, near, strict=True):
            unit = equal.get(named.text) if link is None else units[link]
            try:
                if unit is None:
                    _raise_for(segment, unlinked.get(named.key) if other is None else units[other])
                else:
                    held.append(dataclasses.replace(segment, target=_returned(segment, unit)))
                    sources[segment.key] = unit
            except DataError as error:
                reasons[segment.key] = str(error)
        records = {record.key: record for record in checked(held)}
        reasons |= {key: record.reason for key, record in records.items() if not record.is_done}
        for key in records.keys() - reasons:
            if _is_approved(sources[key].element):
                records[key] = dataclasses.replace(records[key], state="approved")
        return [
            untranslated_record(s.key, s.source, reasons[s.key])
            if s.key in reasons
            else records[s.key]
            for s in segments
        ]

    def _units(self, name: str) -> Sequence[_Unit]:
        if name in self._files:
            return self._files[name]
        last = PurePath(name).name
        alike = [units for other, units in self._files.items() if PurePath(other).name == last]
        if len(alike) != 1:
            raise DataError(f"{name}: the XLIFF file has no translations of it")
        return alike[0]


def _is_approved(unit: Element) -> bool:
    target = unit.child("target")
    return unit.get("approved") == "yes" or (
        target is not None and target.get("state") in CONFIRMED
    )


def _returned(segment: Segment, unit: _Unit) -> str:
    """The translation of a segment.  Raises DataError if there is none."""
    target = unit.element.child("target")
    text = _text(target, segment) if target else ""
    if not text or (text == segment.source and target and target.get("state") in COPIED[1:]):
        raise DataError("it is not translated in the XLIFF file")
    return text


def _raise_for(segment: Segment, other: _Unit | None) -> NoReturn:
    """Raise DataError for a segment whose source no unit has.

    other: the unit that is in its place.
    """
    if other is None:
        raise DataError("it is not in the XLIFF file")
    _text(other.source, segment)
    raise DataError("its source is another in the XLIFF file; write the file anew")


def _compared(source: Element) -> str:
    """The content of a source, whatever its white space and the attributes of its codes."""
    content = xml_text(source, XLIFF_OPAQUE, {})
    texts = []
    for is_tag, part in parts_of(content.source, content.tags):
        name, number = _code(part) if is_tag else ("", "")
        if not is_tag:
            texts.append(from_markup(part))
        elif name != "mrk":
            texts.append(f"\0{name} {number}\0" if name in XLIFF_OPAQUE else part)
    return " ".join("".join(texts).split())


def _compared_segment(segment: Segment) -> str:
    """The source of a segment, as `_compared`."""
    codes = [f"\0{name} {number}\0" for _, name, number in _codes(segment.tags)]

    def write(text: str) -> str:
        return FORBIDDEN.sub("", from_markup(text) if segment.markup else text)

    return " ".join(with_tags(segment.source, segment.tags, codes, write).split())


def _code(tag: str) -> tuple[str, str]:
    """The name and the id of a code."""
    match = CODE.match(tag)
    ids = {m["name"]: m["a"] or m["b"] for m in reversed([*ATTRIBUTE.finditer(tag)])}
    return match[1] if match else "", ids.get("id") or ""


def _text(element: Element, segment: Segment) -> str:
    """The content of a source or target as a text of the segment."""
    codes = {(name, number): tag for tag, name, number in _codes(segment.tags)}
    content = xml_text(element, XLIFF_OPAQUE, {})
    parts = []
    for is_tag, part in parts_of(content.source, content.tags):
        if not is_tag:
            parts.append(part if segment.markup else from_markup(part))
            continue
        name, number = _code(part)
        if name in XLIFF_OPAQUE and (name, number) in codes:
            parts.append(codes[name, number])
        elif name != "mrk":
            raise DataError(f"{part} is no tag of its source")
    return "".join(parts)
