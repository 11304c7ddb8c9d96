"""XLIFF 1.2 as an exchange with people: segments of any documents out, their translations back.

A document is a `file`, a segment a `trans-unit` by its key.  Tags are codes (`bpt`, `ept`, `ph`)
with numbers as their ids, which tools keep whatever else they rewrite.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import PurePath
from typing import NamedTuple, NoReturn

from transduce.errors import DataError
from transduce.localise.checks import checked
from transduce.localise.document import Reading, Segment
from transduce.localise.inline import from_markup, parts_of, with_tags
from transduce.localise.matching import Named, changed, matched
from transduce.localise.record import Record, untranslated
from transduce.localise.tags import parsed, partners
from transduce.localise.xliff import CONFIRMED, COPIED, OPAQUE, REVIEW
from transduce.localise.xml import ATTRIBUTE, Element, read_xml, text_of

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
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
    lines = [HEAD]
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
        _, root = read_xml(content, Reading())
        self._files = {
            from_markup(element.get("original")): [
                _Unit(Named(from_markup(unit.get("id")), _compared(source)), unit, source)
                for unit in element.descendants()
                if unit.local_name == "trans-unit" and (source := unit.child("source"))
            ]
            for element in root.children
            if element.local_name == "file"
        }

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
        near = changed(before, after, links, by_key=False)
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
            untranslated(s.key, s.source, reasons[s.key]) if s.key in reasons else records[s.key]
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
    content = text_of(source, OPAQUE, {})
    texts = []
    for is_tag, part in parts_of(content.source, content.tags):
        name, number = _code(part) if is_tag else ("", "")
        if not is_tag:
            texts.append(from_markup(part))
        elif name != "mrk":
            texts.append(f"\0{name} {number}\0" if name in OPAQUE else part)
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
    content = text_of(element, OPAQUE, {})
    parts = []
    for is_tag, part in parts_of(content.source, content.tags):
        if not is_tag:
            parts.append(part if segment.markup else from_markup(part))
            continue
        name, number = _code(part)
        if name in OPAQUE and (name, number) in codes:
            parts.append(codes[name, number])
        elif name != "mrk":
            raise DataError(f"{part} is no tag of its source")
    return "".join(parts)
