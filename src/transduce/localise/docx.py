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
from transduce.localise.document import Document, Edit, Kind, Reading, Segment, Span, Tag, spliced
from transduce.localise.inline import check_tags, core, from_markup, to_file, to_markup
from transduce.localise.languages import base_of, is_right_to_left, is_same_language
from transduce.localise.record import Record
from transduce.localise.units import BREAK, CONTROL, framed, shortened
from transduce.localise.xml import Element, read_archive

DOCX_ROOTS = frozenset(("document", "hdr", "ftr", "footnotes", "endnotes", "comments"))
DOCX_LEFT = frozenset(("w:del", "w:moveFrom", "w:fldSimple"))
"""Elements whose text is not translated: deleted, moved away, or of a field."""
VOIDS = {"w:br": "br", "w:cr": "br", "w:tab": "tab", "w:ptab": "tab"}
"""Names of tags of breaks, as `tags.is_break` has them."""
AFTER_BIDI = frozenset(
    f"w:{name}"
    for name in (
        *("adjustRightInd", "snapToGrid", "spacing", "ind", "contextualSpacing", "mirrorIndents"),
        *("suppressOverlap", "jc", "textDirection", "textAlignment", "textboxTightWrap"),
        *("outlineLvl", "divId", "cnfStyle", "rPr", "sectPr", "pPrChange"),
    )
)
"""Properties of a paragraph that stand behind its direction."""
AFTER_RTL = re.compile("<w:(?:cs|em|eastAsianLayout|specVanish|oMath|rPrChange)\\b")
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


class RunPiece(NamedTuple):
    """Text of one formatting in markup form, or the place of what is none; alone in its run, or
    between runs."""

    format: Format
    text: str
    span: Span | None = None
    is_in_run: bool = False
    name: str = "x"
    is_field: bool = False


def read_docx(content: bytes, reading: Reading) -> Document:
    """Read the paragraphs of a document, its headers, footers, notes, comments and text boxes; the
    same text in a text box and its fallback is one segment."""
    archive, roots = read_archive(content, reading, r"word/[^/]+\.xml")
    paragraphs: dict[str, list[_Paragraph]] = {}
    keys: dict[tuple[object, str], str] = {}
    unread: list[Record] = []
    is_rtl = reading.language is not None and is_right_to_left(reading.language)
    for name, root in roots.items():
        part = shortened(name.removeprefix("word/"))
        elements = (
            e for e in root.descendants() if root.local_name in DOCX_ROOTS and e.name == "w:p"
        )
        for number, element in enumerate(elements, 1):
            reading.check()
            paragraph = _Paragraph(element, f"{part}, paragraph {number}", is_rtl)
            unread += paragraph.unread()
            box = element.parent
            while box is not None and box.name != "mc:AlternateContent":
                box = box.parent
            if source := paragraph.segment.source:
                key = keys.setdefault((box or element, source), paragraph.segment.key)
                paragraph.segment = dataclasses.replace(paragraph.segment, key=key)
                paragraphs.setdefault(key, []).append(paragraph)
    segments = [several[0].segment for several in paragraphs.values()]
    language = list(_docx_languages(roots, reading.language)) if reading.language else []
    render = functools.partial(_edits, paragraphs)
    return Document(segments, archive, render, language=language, unread=unread)


def _docx_languages(roots: Mapping[str, Element], language: str) -> Iterator[Edit]:
    """Edits of the language of the styles, by which Word checks the spelling."""
    base = base_of(language)
    name = "w:eastAsia" if base in ("ja", "ko", "zh") else "w:val"
    name = "w:bidi" if is_right_to_left(language) else name
    for root in roots.values():
        for element in root.descendants() if root.local_name == "styles" else ():
            if element.name == "w:lang" and not is_same_language(element.get(name), language):
                yield element.with_attribute(name, language)


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
            edits += paragraph.direction()
    return reversed(edits)


class _Paragraph:
    """A paragraph: its segment, what frames it, and what its tags stand for."""

    def __init__(self, element: Element, key: str, is_rtl: bool) -> None:
        self.element = element
        self.is_rtl = is_rtl
        self.text = element.text
        visible = [child for child in element.children if child.name not in INVISIBLE]
        edges = (visible[0].span.start, visible[-1].span.end) if visible else (0, 0)
        self.span = Span(*edges)
        self.ranges = {"Start": "", "End": ""}
        pieces = _merged(self._pieces([*_children(element, Format("", "", ""))]))
        sizes = Counter[Format]()
        for piece in pieces:
            if not piece.format.opened:
                sizes[piece.format] += len(piece.text)
        self.base = sizes.most_common(1)[0][0] if sizes else Format("", "", "")
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

    def _pieces(self, items: Sequence[tuple[Format, Element]]) -> Iterator[RunPiece]:
        fields = _fields(items)
        last = -1
        for i, (form, element) in enumerate(items):
            if i <= last:
                continue
            last = fields.get(i, i)
            if i < last:
                span = Span(element.span.start, items[last][1].span.end)
                yield RunPiece(form, "", span, is_field=True)
            elif mark := RANGE.fullmatch(element.name):
                self.ranges[mark[1]] += self.text[slice(*element.span)]
            elif element.name != "w:r":
                yield RunPiece(form, "", element.span)
            else:
                properties = element.child("rPr")
                shown = UNSHOWN.sub("", properties.raw) if properties else ""
                form = form._replace(properties=f"<w:rPr>{shown}</w:rPr>" if shown.strip() else "")
                for child in element.children:
                    if child.name == "w:t":
                        yield RunPiece(form, to_markup(child.raw, {}))
                    elif child.name not in INVISIBLE:
                        yield RunPiece(form, "", child.span, True, VOIDS.get(child.name, "x"))

    def unread(self) -> Iterator[Record]:
        """The record of texts beside the segment, but of text boxes, which have paragraphs."""
        known = self.pieces.values()
        voids = [p.span for p in known if p.span is not None and not p.is_field]
        texts = [
            e.raw
            for e in _texts(self.element)
            if any(span.start <= e.begin < span.end for span in voids)
        ]
        text = from_markup(to_markup("".join(texts), {})).strip()
        if any(map(str.isalnum, text)):
            yield Record(self.segment.key, text, text, "unread", "its text is in no run of its own")

    def direction(self) -> Iterator[Edit]:
        """Edit that makes the paragraph run from the right, if its language does."""
        properties = self.element.child("pPr")
        if not self.is_rtl or (properties and properties.child("bidi")):
            return
        start = self.element.content.start
        text = "<w:bidi/>" if properties else "<w:pPr><w:bidi/></w:pPr>"
        if properties and properties.is_empty_tag:
            yield properties.with_content(text)
            return
        if properties:
            following = (e.begin for e in properties.children if e.name in AFTER_BIDI)
            start = next(following, properties.content.end)
        yield Edit(Span(start, start), text)

    def written(self, target: str, inside: Sequence[Edit]) -> str:
        """The runs of a translation, with edits inside of what is no text."""
        if control := CONTROL.search(target):
            raise DataError(f"{self.segment.key}: the file cannot hold {control[0]!r}; remove it")
        check_tags(self.segment.key, self.segment.tags, target)
        runs: list[tuple[Format, str]] = []
        form = self.base
        for is_tag, text in to_file(f"{self.frame[0]}{target}{self.frame[1]}", self.tags, {}):
            piece = self.pieces.get(text)
            if not is_tag:
                run = f'{self._properties(form)}<w:t xml:space="preserve">{text}</w:t>'
                runs += [(form, f"<w:r>{run}</w:r>")] if text else []
            elif piece is None:
                form = self.base
            elif piece.span is None:
                form = piece.format
            else:
                run = spliced(self.text, piece.span, inside)
                run = f"<w:r>{piece.format.properties}{run}</w:r>" if piece.is_in_run else run
                runs.append((piece.format, run))
        parts = [self.ranges["Start"]]
        for (opened, closed), several in itertools.groupby(runs, lambda run: run[0][:2]):
            parts += opened, *(run for _, run in several), closed
        return "".join([*parts, self.ranges["End"]])

    def _properties(self, form: Format) -> str:
        """Properties of a run of text, from the right if its language is."""
        if not self.is_rtl or "<w:rtl/>" in form.properties:
            return form.properties
        inner = form.properties.removeprefix("<w:rPr>").removesuffix("</w:rPr>")
        following = AFTER_RTL.search(inner)
        end = following.start() if following else len(inner)
        return f"<w:rPr>{inner[:end]}<w:rtl/>{inner[end:]}</w:rPr>"


def _texts(parent: Element) -> Iterator[Element]:
    """Texts below an element that readers see, but those of paragraphs in it."""
    for child in parent.children:
        if child.name == "w:t":
            yield child
        elif child.name != "w:p" and child.name not in DOCX_LEFT:
            yield from _texts(child)


def _children(parent: Element, form: Format) -> Iterator[tuple[Format, Element]]:
    """Runs, and what else is between them, with the containers around each: any element with runs,
    whose properties begin it."""
    for child in parent.children:
        if child.name in INVISIBLE or child.name.endswith("Pr"):
            continue
        if child.name not in ("w:r", "w:ruby", *DOCX_LEFT) and any(_docx_runs(child)):
            properties = (e for e in child.children if e.name.endswith("Pr"))
            opened = "".join(child.text[slice(*e.span)] for e in properties)
            opened = form.opened + child.text[slice(*child.start)] + opened
            yield from _children(child, Format(opened, f"</{child.name}>{form.closed}", ""))
        else:
            yield form, child


def _docx_runs(parent: Element) -> Iterator[Element]:
    """Runs in an element and in its containers."""
    for child in parent.children:
        if child.name == "w:r":
            yield child
        elif child.name.startswith("w:") and child.name not in DOCX_LEFT and child.name != "w:p":
            yield from _docx_runs(child)


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
