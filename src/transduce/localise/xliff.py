"""XLIFF 1.2, with states of SDL Trados (SDLXLIFF) and memoQ (MQXLIFF), and XLIFF 2."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from transduce.localise.document import DecodedText, Document, Edit, Reading, Segment, Span, State
from transduce.localise.languages import names_language, of_other_languages
from transduce.localise.record import Record
from transduce.localise.units import Unit, document_of, shortened
from transduce.localise.xml import Element, Text, blank_before, text_of

OPAQUE = ("bpt", "ept", "ph", "it", "x", "bx", "ex", "sc", "ec", "cp", "sm", "em")
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
    approved is confirmed."""
    is_second = root.get("version").startswith("2")
    units: list[Unit] = []
    confirmed: list[Segment] = []
    references: dict[str, str] = {}
    left, language, unread = _languages(root, is_second, reading)
    for number, element in enumerate(_units(root, True), 1):
        reading.check()
        if any(span.start < element.begin < span.end for span in left):
            continue
        key = shortened(element.get("id") or element.get("resname"))
        name = f"unit {number} ({key})" if key else f"unit {number}"
        if is_second:
            layouts = [
                _Layout(decoded, part, f"{name}, segment {i}" if i > 1 else name, references)
                for i, part in enumerate(element.children, 1)
                if part.local_name == "segment"
            ]
        else:
            layouts = [_Layout(decoded, element, name, references)]
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


def _units(parent: Element, translated: bool) -> Iterator[Element]:
    for child in parent.children:
        if child.local_name in ("file", "body", "group", "trans-unit", "unit"):
            flag = child.get("translate", "yes" if translated else "no")
            if child.local_name not in ("trans-unit", "unit"):
                yield from _units(child, flag != "no")
            elif flag != "no":
                yield child


class _Layout:
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
        has_words = self.target is not None and text_of(self.target, OPAQUE, {}).has_words
        if not has_words and not marks.keys() <= targets.keys():
            targets = {}  # the target is written anew
        for mid, element in marks.items():
            if has_words and mid not in targets:
                continue  # segmented in another way
            text = text_of(element, OPAQUE, references)
            holder = self.states.get(mid, unit)
            key = shortened(f"{name}, {mid}") if len(marks) > 1 else name
            self._add(Pair(key, text, targets.get(mid), holder, mid))
        if not marks:
            text = text_of(self.source, OPAQUE, references)
            self._add(Pair(name, text, self.target, unit))

    def _add(self, pair: Pair) -> None:
        if pair.source.has_words:
            self.pairs[pair.key] = pair

    def segments(self, confirmed: list[Segment]) -> Sequence[Segment]:
        """Segments of all but locked and approved pairs, whose translations go to `confirmed`."""
        segments = []
        for pair in self.pairs.values():
            text = None if pair.target is None else text_of(pair.target, OPAQUE, {})
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
