"""DOCX: paragraphs are segments; runs of equal formatting are one text, other formatting is tags.

A translated paragraph gets new runs with the formatting of the old ones; fields, deleted text and
drawings stay as they are.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.archive import read_archive
from transduce.localise.document import Document, Edit, Reading, Segment, Span, spliced
from transduce.localise.inline import check_tags, core, to_file, to_markup
from transduce.localise.tags import Kind, Tag
from transduce.localise.units import BREAK, CONTROL, framed, shortened
from transduce.localise.xml import Element

ROOTS = frozenset(("document", "hdr", "ftr", "footnotes", "endnotes", "comments"))
CONTAINERS = frozenset(("w:hyperlink", "w:ins", "w:smartTag"))
INVISIBLE = frozenset(("w:pPr", "w:rPr", "w:proofErr", "w:lastRenderedPageBreak"))
RANGE = re.compile(r"w:(?:bookmark|commentRange|perm)(Start|End)")
"""Ends of ranges, which go to the ends of a paragraph."""
UNSHOWN = re.compile(r"<w:(?:lang|noProof)\b[^>]*/>|<w:rFonts w:hint=\"\w*\" ?/>| w:hint=\"\w*\"")
"""Parts of a formatting that no reader sees."""


class Format(NamedTuple):
    """Start and end tags of the containers around a run, and the properties of the run."""

    opened: str
    closed: str
    properties: str


class Piece(NamedTuple):
    """Text of one formatting in markup form, or the place of what is none; alone in its run, or
    between runs."""

    format: Format
    text: str
    span: Span | None = None
    is_in_run: bool = False


def read_docx(content: bytes, reading: Reading) -> Document:
    """Read the paragraphs of a document, its headers, footers, notes, comments and text boxes; the
    same text in a text box and its fallback is one segment."""
    archive, roots = read_archive(content, reading, r"word/[^/]+\.xml")
    paragraphs: dict[str, list[_Paragraph]] = {}
    keys: dict[tuple[object, str], str] = {}
    for name, root in roots.items():
        part = shortened(name.removeprefix("word/"))
        elements = (e for e in root.descendants() if root.local_name in ROOTS and e.name == "w:p")
        for number, element in enumerate(elements, 1):
            reading.check()
            paragraph = _Paragraph(element, f"{part}, paragraph {number}")
            box = element.parent
            while box is not None and box.name != "mc:AlternateContent":
                box = box.parent
            if source := paragraph.segment.source:
                key = keys.setdefault((box or element, source), paragraph.segment.key)
                paragraph.segment = dataclasses.replace(paragraph.segment, key=key)
                paragraphs.setdefault(key, []).append(paragraph)
    segments = [several[0].segment for several in paragraphs.values()]
    return Document(segments, archive, functools.partial(_edits, paragraphs))


def _edits(
    paragraphs: Mapping[str, Sequence[_Paragraph]], targets: Mapping[str, str]
) -> Iterator[Edit]:
    edits: list[Edit] = []
    translated = [(paragraph, targets[key]) for key in targets for paragraph in paragraphs[key]]
    translated.sort(key=lambda pair: pair[0].span.start, reverse=True)
    for paragraph, target in translated:  # those in text boxes before the one around them
        if target != paragraph.segment.source:
            inside = []
            while edits and edits[-1].span.end <= paragraph.span.end:
                inside.append(edits.pop())
            written = paragraph.written(BREAK.sub("\n", target), inside)
            edits.append(Edit(paragraph.span, written))
    return reversed(edits)


class _Paragraph:
    """A paragraph: its segment, what frames it, and what its tags stand for."""

    def __init__(self, element: Element, key: str) -> None:
        self.text = element.text
        visible = [child for child in element.children if child.name not in INVISIBLE]
        edges = (visible[0].span.start, visible[-1].span.end) if visible else (0, 0)
        self.span = Span(*edges)
        self.ranges = {"Start": "", "End": ""}
        pieces = _merged(self._pieces([*_children(element, Format("", "", ""))]))
        sizes = Counter[Format]()
        for piece in pieces:
            sizes[piece.format] += 0 if piece.format.opened else len(piece.text)
        self.base = sizes.most_common(1)[0][0] if sizes else Format("", "", "")
        self.pieces: dict[str, Piece] = {}
        parts: list[tuple[Kind, str]] = []
        for number, piece in enumerate(pieces, 1):
            self.pieces |= {f"<x{number}/>": piece, f"<g{number}>": piece}
            if piece.span is not None:
                parts.append(("void", f"<x{number}/>"))
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

    def _pieces(self, items: Sequence[tuple[Format, Element]]) -> Iterator[Piece]:
        fields = _fields(items)
        last = -1
        for i, (form, element) in enumerate(items):
            if i <= last:
                continue
            last = fields.get(i, i)
            if i < last:
                yield Piece(form, "", Span(element.span.start, items[last][1].span.end))
            elif mark := RANGE.fullmatch(element.name):
                self.ranges[mark[1]] += self.text[slice(*element.span)]
            elif element.name != "w:r":
                yield Piece(form, "", element.span)
            else:
                properties = element.child("rPr")
                shown = UNSHOWN.sub("", properties.raw) if properties else ""
                form = form._replace(properties=f"<w:rPr>{shown}</w:rPr>" if shown.strip() else "")
                for child in element.children:
                    if child.name == "w:t":
                        yield Piece(form, to_markup(child.raw, {}))
                    elif child.name not in INVISIBLE:
                        yield Piece(form, "", child.span, True)

    def written(self, target: str, inside: Sequence[Edit]) -> str:
        """The runs of a translation, with edits inside of what is no text."""
        if control := CONTROL.search(target):
            raise DataError(f"{self.segment.key}: the file cannot hold {control[0]!r}; remove it")
        check_tags(self.segment.key, self.segment.tags, target)
        parts = [self.ranges["Start"]]
        form = self.base
        for is_tag, text in to_file(f"{self.frame[0]}{target}{self.frame[1]}", self.tags, {}):
            piece = self.pieces.get(text)
            if not is_tag:
                run = f'{form.properties}<w:t xml:space="preserve">{text}</w:t>'
                parts.append(f"<w:r>{run}</w:r>" if text else "")
            elif piece is None:
                parts.append(form.closed)
                form = self.base
            elif piece.span is None:
                form = piece.format
                parts.append(form.opened)
            else:
                run = spliced(self.text, piece.span, inside)
                run = f"<w:r>{piece.format.properties}{run}</w:r>" if piece.is_in_run else run
                parts += piece.format.opened, run, piece.format.closed
        return "".join([*parts, self.ranges["End"]])


def _children(parent: Element, form: Format) -> Iterator[tuple[Format, Element]]:
    """Runs, and what else is between them, with the containers around each."""
    for child in parent.children:
        if child.name in CONTAINERS:
            opened = form.opened + child.text[slice(*child.start)]
            yield from _children(child, Format(opened, f"</{child.name}>{form.closed}", ""))
        elif child.name not in INVISIBLE:
            yield form, child


def _fields(items: Sequence[tuple[Format, Element]]) -> dict[int, int]:
    """Index of the end of each field that is no link, by that of its beginning."""
    ends: dict[int, int] = {}
    begun: list[int] = []
    for i, (form, element) in enumerate(items):
        begun += [i] * element.raw.count('w:fldCharType="begin"')
        for _ in range(min(element.raw.count('w:fldCharType="end"'), len(begun))):
            start = begun.pop()
            code = "".join(child.raw for _, child in items[start : min(start + 3, i)])
            if items[start][0] == form and "HYPERLINK" not in code:
                ends[start] = i
    return ends


def _merged(pieces: Iterator[Piece]) -> list[Piece]:
    """Texts of equal formatting beside each other as one; a blank has that of its neighbour."""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else piece
        is_text = merged and piece.span is None and last.span is None
        if is_text and (
            piece.format == last.format or not (piece.text.strip() and last.text.strip())
        ):
            form = piece.format if piece.text.strip() else last.format
            merged[-1] = Piece(form, last.text + piece.text)
        else:
            merged.append(piece)
    return merged
