"""XLIFF 1.2 as an exchange with people: segments of any documents out, their translations back.

A document is a `file`, a segment a `trans-unit` by its key.  Tags are codes (`bpt`, `ept`, `ph`)
with numbers as their ids, which tools keep whatever else they rewrite.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import PurePath
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.checks import checked
from transduce.localise.document import Reading, Segment
from transduce.localise.inline import from_markup, parts_of, with_tags
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


class Exchange:
    """An XLIFF file that came back: its units by document and key."""

    def __init__(self, content: bytes) -> None:
        _, root = read_xml(content, Reading())
        self._files = {
            from_markup(element.get("original")): {
                from_markup(unit.get("id")): unit
                for unit in element.descendants()
                if unit.local_name == "trans-unit"
            }
            for element in root.children
            if element.local_name == "file"
        }

    def records(self, name: str, segments: Sequence[Segment]) -> list[Record]:
        """Translations of the segments of a document; one without a translation, or whose
        placeholders and tags it does not keep, is not done.

        Raises DataError if the file has none of the document.
        """
        units = self._units(name)
        reasons: dict[str, str] = {}
        held = []
        for segment in segments:
            try:
                held.append(dataclasses.replace(segment, target=_returned(segment, units)))
            except DataError as error:
                reasons[segment.key] = str(error)
        records = {record.key: record for record in checked(held)}
        reasons |= {key: record.reason for key, record in records.items() if not record.is_done}
        for key in records.keys() - reasons:
            if _is_approved(units[FORBIDDEN.sub("", key)]):
                records[key] = dataclasses.replace(records[key], state="approved")
        return [
            untranslated(s.key, s.source, reasons[s.key]) if s.key in reasons else records[s.key]
            for s in segments
        ]

    def _units(self, name: str) -> Mapping[str, Element]:
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


def _returned(segment: Segment, units: Mapping[str, Element]) -> str:
    """The translation of a segment.  Raises DataError if there is none."""
    unit = units.get(FORBIDDEN.sub("", segment.key))
    source, target = (unit.child(name) if unit else None for name in ("source", "target"))
    if source is None:
        raise DataError("it is not in the XLIFF file")
    if _text(source, segment).split() != FORBIDDEN.sub("", segment.source).split():
        raise DataError("its source is another in the XLIFF file; write the file anew")
    text = _text(target, segment) if target else ""
    if not text or (text == segment.source and target and target.get("state") in COPIED[1:]):
        raise DataError("it is not translated in the XLIFF file")
    return text


def _text(element: Element, segment: Segment) -> str:
    """The content of a source or target as a text of the segment."""
    codes = {(name, number): tag for tag, name, number in _codes(segment.tags)}
    content = text_of(element, OPAQUE, {})
    parts = []
    for is_tag, part in parts_of(content.source, content.tags):
        if not is_tag:
            parts.append(part if segment.markup else from_markup(part))
            continue
        match = CODE.match(part)
        name = match[1] if match else ""
        ids = {m["name"]: m["a"] or m["b"] for m in reversed([*ATTRIBUTE.finditer(part)])}
        if name in OPAQUE:
            if (name, ids.get("id")) not in codes:
                raise DataError(f"{part} is no tag of its source")
            parts.append(codes[name, ids["id"]])
        elif name != "mrk":
            raise DataError(f"{part} is no tag of its source")
    return "".join(parts)
