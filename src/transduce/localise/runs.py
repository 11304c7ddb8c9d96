"""Texts of office files: paragraphs, whose runs of equal formatting are one text and whose other
formatting is tags, values of attributes, and contents of elements.

A translated paragraph gets new runs with the formatting of the old ones; fields, deleted text and
drawings stay as they are, with the texts in them translated.
"""

import dataclasses
import functools
import itertools
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from html.entities import html5
from typing import NamedTuple, Protocol

from transduce.errors import DataError
from transduce.localise.document import (
    DecodedText,
    Document,
    Edit,
    Kind,
    Record,
    Segment,
    Span,
    Tag,
    spliced,
)
from transduce.localise.inline import check_tags, core, escaped, from_markup, to_file, to_markup
from transduce.localise.units import BREAK, check_control, framed
from transduce.localise.xml import ENTITY, Element


def text_markup(raw: str) -> str:
    """Text of a file in markup form.  Raises DataError for an entity that the file declares."""
    declared = (entity[0] for entity in ENTITY.finditer(raw) if entity[0][1:] not in html5)
    if entity := next(declared, None):
        raise DataError(f"{entity} is an entity of the file; write out its text")
    return to_markup(raw, {})


class OfficeText(Protocol):
    """A text of an office file at its place."""

    segment: Segment
    span: Span

    def written(self, target: str, inside: Sequence[Edit]) -> str:
        """The content of the span for a translation, with edits inside of what is no text."""

    def beside(self) -> Iterable[Edit]:
        """Edits beside a translation, such as of the direction."""


class Value:
    """A text without formatting: a value of an attribute, or the content of an element."""

    def __init__(self, text: str, span: Span, key: str, is_attribute: bool) -> None:
        raw = text[slice(*span)]
        before, source, after = framed(text_markup(raw))
        self.segment = Segment(key, source, (span,), markup=True)
        self.span = span
        self.frame = before, after
        self.is_attribute = is_attribute

    def written(self, target: str, inside: Sequence[Edit]) -> str:
        """A translation as the file has it."""
        del inside
        check_control(self.segment.key, target)
        raw = escaped(from_markup(f"{self.frame[0]}{target}{self.frame[1]}"))
        if self.is_attribute:
            raw = raw.replace('"', "&quot;").replace("'", "&apos;").replace("\n", "&#10;")
        return raw

    def beside(self) -> Iterable[Edit]:
        """No edits."""
        return ()


class Keys:
    """Keys of the texts of a part: its name, a kind and a number."""

    def __init__(self, part: str) -> None:
        self.part = part
        self._numbers = Counter[str]()

    def next(self, kind: str) -> str:
        """The key of the next text of a kind."""
        self._numbers[kind] += 1
        return f"{self.part}, {kind} {self._numbers[kind]}"


def attribute_value(element: Element, name: str, keys: Keys) -> Iterator[Value]:
    """The text of an attribute, if it has words."""
    attribute = element.attribute(name)
    if attribute and any(map(str.isalpha, attribute.text)):
        yield Value(element.text, attribute.span, keys.next(element.local_name), True)


def content_value(element: Element, keys: Keys) -> Iterator[Value]:
    """The text of an element without others, if it has words."""
    if not element.children and any(map(str.isalpha, element.raw)):
        yield Value(element.text, element.content, keys.next(element.local_name), False)


FORBIDDEN = re.compile(r"[\[\]*?:/\\']")
LONGEST_SHEET = 31
"""Characters of the name of a sheet that Excel takes."""


PLAIN_NAME = re.compile(r"[^\s'\"<>=(,;+*/&!$\[:-]*$")


class SheetNames:
    """Names of all sheets by their places; none is there twice, in small letters or capitals."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = dict(names)
        self._counts = Counter(map(str.lower, names.values()))

    def rename(self, place: int, name: str) -> bool:
        """Rename a sheet; False, and no change, for the name of another."""
        old, new = self._names[place].lower(), name.lower()
        if new != old and self._counts[new]:
            return False
        self._counts[old] -= 1
        self._counts[new] += 1
        self._names[place] = name
        return True


class SheetName(Value):
    """The name of a sheet that nothing refers to.

    names: of all sheets; a translation becomes one of them.
    """

    def __init__(self, text: str, span: Span, key: str, names: SheetNames) -> None:
        super().__init__(text, span, key, True)
        self.segment = dataclasses.replace(self.segment, limit=LONGEST_SHEET)
        self.names = names

    def written(self, target: str, inside: Sequence[Edit]) -> str:
        """The name in the file.  Raises DataError for one that a file cannot have."""
        name = from_markup(target)
        is_possible = len(name) <= LONGEST_SHEET and not FORBIDDEN.search(name)
        if not (is_possible and self.names.rename(self.span.start, name)):
            raise DataError(
                f"{self.segment.key}: {name!r} cannot be the name of a sheet; choose another of at "
                f"most {LONGEST_SHEET} characters, without []*?:/\\'"
            )
        return super().written(target, inside)


def _names_before(text: str, sign: str) -> Iterator[str]:
    """The names of sheets that stand before a sign."""
    for match in re.finditer(sign, text):
        before = text[max(match.start() - 3 * LONGEST_SHEET, 0) : match.start()]
        before = from_markup(to_markup(before, {}))
        yield (
            before.rstrip("'").rpartition("'")[2]
            if before[-1:] == "'"
            else PLAIN_NAME.findall(before)[0]
        )


def formula_record(keys: Keys, shown: str) -> Record:
    """The record of the text that a formula gives."""
    return Record(keys.next("formula"), shown, shown, "unread", "it is the result of a formula")


class Format(NamedTuple):
    """Start and end tags of the containers around a run, and the properties of the run."""

    opened: str
    closed: str
    properties: str


NO_FORMAT = Format("", "", "")


class RunPiece(NamedTuple):
    """Text of one formatting in markup form, or the place of what is none; alone in its run, or
    between runs."""

    format: Format
    text: str
    span: Span | None = None
    is_in_run: bool = False
    name: str = "x"
    is_field: bool = False


class Paragraph:
    """A paragraph: its segment, what frames it, and what its tags stand for."""

    def __init__(self, element: Element, key: str, span: Span) -> None:
        self.element = element
        self.text = element.text
        self.span = span
        self.ranges: dict[str, list[Span]] = {"Start": [], "End": []}
        pieces = _merged(self.run_pieces())
        sizes = Counter[Format]()
        for piece in pieces:
            if not piece.format.opened:
                sizes[piece.format] += len(piece.text)
        self.base = sizes.most_common(1)[0][0] if sizes else NO_FORMAT
        self.pieces: dict[str, RunPiece] = {}
        parts: list[tuple[Kind, str]] = []
        for number, piece in enumerate(pieces, 1):
            void = f"<{piece.name}{number}/>"
            self.pieces |= {void: piece, f"<g{number}>": piece}
            if piece.span is not None:
                parts.append(("void", void))
            elif piece.format == self.base:
                parts.append(("text", piece.text))
            else:
                parts += ("open", f"<g{number}>"), ("text", piece.text), ("close", f"</g{number}>")
        ends = itertools.accumulate(len(text) for _, text in parts)
        tags = [
            Tag(kind, text.strip("</>"), Span(end - len(text), end))
            for (kind, text), end in zip(parts, ends, strict=True)
        ]
        texts = [text for _, text in parts]
        first, last = core(tags, "".join(texts))
        before, source, after = framed("".join(texts[first:last]))
        self.frame = "".join([*texts[:first], before]), "".join([after, *texts[last:]])
        inner = tuple(text for kind, text in parts[first:last] if kind != "text")
        self.tags = tuple(text for kind, text in parts if kind != "text")
        self.segment = Segment(key, source, (self.span,), inner, True)

    def run_pieces(self) -> Iterator[RunPiece]:
        """The parts of the paragraph, in order; marks of ranges go to `ranges`."""
        raise NotImplementedError

    def run(self, form: Format, text: str) -> str:
        """A run of a text as the file has it, in the containers of its format."""
        raise NotImplementedError

    def void(self, piece: RunPiece, raw: str) -> str:
        """A part without text, as the file has it, in a run of its own if it is inside of one."""
        return raw

    def texts_inside(self) -> Iterator[Element]:
        """Elements with text that readers see, those of other paragraphs left out."""
        return iter(())

    def beside(self) -> Iterable[Edit]:
        """Edits beside a translation."""
        return ()

    def unread(self) -> Iterator[Record]:
        """The record of texts beside the segment, but of text boxes, which have paragraphs."""
        known = self.pieces.values()
        voids = [p.span for p in known if p.span is not None and not p.is_field]
        texts = [
            e.raw
            for e in self.texts_inside()
            if any(span.start <= e.begin < span.end for span in voids)
        ]
        text = from_markup(to_markup("".join(texts), {})).strip()
        if any(map(str.isalnum, text)):
            yield Record(self.segment.key, text, text, "unread", "its text is in no run of its own")

    def written(self, target: str, inside: Sequence[Edit]) -> str:
        """The runs of a translation, with edits inside of what is no text."""
        check_control(self.segment.key, target)
        check_tags(self.segment.key, self.segment.tags, target)
        runs: list[tuple[Format, str]] = []
        form = self.base
        for is_tag, text in to_file(f"{self.frame[0]}{target}{self.frame[1]}", self.tags, {}):
            piece = self.pieces.get(text)
            if not is_tag:
                runs += [(form, self.run(form, text))] if text else []
            elif piece is None:
                form = self.base
            elif piece.span is None:
                form = piece.format
            else:
                run = spliced(self.text, piece.span, inside)
                runs.append((piece.format, self.void(piece, run)))
        parts = [spliced(self.text, span, inside) for span in self.ranges["Start"]]
        for (opened, closed), several in itertools.groupby(runs, lambda run: run[0][:2]):
            parts += opened, *(run for _, run in several), closed
        parts += [spliced(self.text, span, inside) for span in self.ranges["End"]]
        return "".join(parts)


def _merged(pieces: Iterator[RunPiece]) -> list[RunPiece]:
    """Texts of equal formatting beside each other as one; a blank has that of its neighbour."""
    merged: list[RunPiece] = []
    for piece in pieces:
        last = merged[-1] if merged else piece
        is_text = merged and piece.span is None and last.span is None
        if is_text and (
            piece.format == last.format or not (piece.text.strip() and last.text.strip())
        ):
            form = piece.format if piece.text.strip() else last.format
            merged[-1] = RunPiece(form, last.text + piece.text)
        else:
            merged.append(piece)
    return merged


def visible_span(element: Element, invisible: Iterable[str]) -> Span:
    """From the first to the last child whose name is not among some."""
    visible = [child for child in element.children if child.name not in invisible]
    return Span(visible[0].begin, visible[-1].end) if visible else Span(0, 0)


class OfficeTexts:
    """The texts of a file; equal ones of a group are one segment."""

    def __init__(self) -> None:
        self.by_key: dict[str, list[OfficeText]] = {}
        self.unread: list[Record] = []
        self._keys: dict[Hashable, str] = {}

    def add(self, text: OfficeText, group: Hashable = None) -> None:
        """Add a text of a group, by default of one of its own."""
        if source := text.segment.source:
            key = self._keys.setdefault(
                (text if group is None else group, source), text.segment.key
            )
            text.segment = dataclasses.replace(text.segment, key=key)
            self.by_key.setdefault(key, []).append(text)

    def add_sheets(self, sheets: Sequence[Element], name: str, keys: Keys, sign: str) -> None:
        """Add the names of sheets; one that formulas refer to stays, with a record.

        name: of the attribute.  sign: pattern of what is between a sheet and a cell.
        """
        attributes = [a for sheet in sheets if (a := sheet.attribute(name))]
        shown_names = {a.span.start: from_markup(a.text) for a in attributes}
        names = SheetNames(shown_names)
        text = sheets[0].text if sheets else ""
        referred = set(_names_before(text, sign))
        for attribute in attributes:
            key, shown = keys.next("sheet"), shown_names[attribute.span.start]
            if shown in referred:
                reason = "formulas refer to the sheet by its name"
                self.unread.append(Record(key, shown, shown, "unread", reason))
            elif any(map(str.isalpha, shown)):
                self.add(SheetName(text, attribute.span, key, names))

    def document(self, decoded: DecodedText, language: Iterable[Edit]) -> Document:
        """The document of the texts; `language` names the target language in it."""
        segments = [several[0].segment for several in self.by_key.values()]
        render = functools.partial(_edits, self.by_key)
        return Document(segments, decoded, render, language=[*language], unread=self.unread)


def _edits(
    by_key: Mapping[str, Sequence[OfficeText]], targets: Mapping[str, str]
) -> Iterator[Edit]:
    edits: list[Edit] = []
    translated = [(text, targets[key]) for key in targets for text in by_key[key]]
    translated.sort(key=lambda pair: pair[0].span.start, reverse=True)
    for text, target in translated:  # those in text boxes before the one around them
        if target != text.segment.source:
            inside = []
            while edits and edits[-1].span.end <= text.span.end:
                inside.append(edits.pop())
            written = text.written(BREAK.sub("\n", target), inside)
            edits.append(Edit(text.span, written))
            edits += text.beside()
    return reversed(edits)
