"""DOCX: paragraphs of the text, its notes and text boxes, and texts of drawings and charts."""

import re
from collections.abc import Iterator, Mapping, Sequence

from transduce.localise.document import Document, Edit, Reading, Span
from transduce.localise.drawing import PROPERTIES, drawing_texts
from transduce.localise.languages import base_of, is_right_to_left, is_same_language
from transduce.localise.runs import (
    NO_FORMAT,
    Format,
    Keys,
    OfficeTexts,
    Paragraph,
    RunPiece,
    attribute_value,
    text_markup,
    visible_span,
)
from transduce.localise.units import shortened
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
WORD = re.compile(r"[^\W\d_]{2}")
"""A part of a word, unlike a letter that is a bullet."""
DOCX_PARTS = rf"word/(?:(?:charts|diagrams|drawings)/)?[^/]+\.xml|{PROPERTIES}"


def read_docx(content: bytes, reading: Reading) -> Document:
    """Read the paragraphs of a document, its headers, footers, notes, comments and text boxes, its
    alternative texts, charts, diagrams and title; the same text in a text box and its fallback is
    one segment."""
    archive, roots = read_archive(content, reading, DOCX_PARTS)
    texts = OfficeTexts()
    is_rtl = reading.language is not None and is_right_to_left(reading.language)
    for name, root in roots.items():
        keys = Keys(shortened(name.removeprefix("word/")))
        elements = (
            e for e in root.descendants() if root.local_name in DOCX_ROOTS and e.name == "w:p"
        )
        for element in elements:
            reading.check()
            paragraph = _WordParagraph(element, keys.next("paragraph"), is_rtl)
            texts.unread += paragraph.unread()
            box = element.parent
            while box is not None and box.name != "mc:AlternateContent":
                box = box.parent
            texts.add(paragraph, box)
        drawing_texts(root, keys, reading, texts)
        for element in root.descendants() if root.local_name == "numbering" else ():
            if element.name == "w:lvlText" and WORD.search(element.get("w:val")):
                for value in attribute_value(element, "w:val", keys):
                    texts.add(value, root)
    language = _docx_languages(roots, reading.language) if reading.language else ()
    return texts.document(archive, language)


def _docx_languages(roots: Mapping[str, Element], language: str) -> Iterator[Edit]:
    """Edits of the language of the styles, by which Word checks the spelling."""
    base = base_of(language)
    name = "w:eastAsia" if base in ("ja", "ko", "zh") else "w:val"
    name = "w:bidi" if is_right_to_left(language) else name
    for root in roots.values():
        for element in root.descendants() if root.local_name == "styles" else ():
            if element.name == "w:lang" and not is_same_language(element.get(name), language):
                yield element.with_attribute(name, language)


class _WordParagraph(Paragraph):
    """A paragraph of Word."""

    def __init__(self, element: Element, key: str, is_rtl: bool) -> None:
        self.is_rtl = is_rtl
        super().__init__(element, key, visible_span(element, INVISIBLE))

    def run_pieces(self) -> Iterator[RunPiece]:
        """Texts of runs, with what is beside them."""
        items = [*_children(self.element, NO_FORMAT)]
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
                self.ranges[mark[1]].append(element.span)
            elif element.name != "w:r":
                yield RunPiece(form, "", element.span)
            else:
                properties = element.child("rPr")
                shown = UNSHOWN.sub("", properties.raw) if properties else ""
                form = form._replace(properties=f"<w:rPr>{shown}</w:rPr>" if shown.strip() else "")
                for child in element.children:
                    if child.name == "w:t":
                        yield RunPiece(form, text_markup(child.raw))
                    elif child.name not in INVISIBLE:
                        yield RunPiece(form, "", child.span, True, VOIDS.get(child.name, "x"))

    def texts_inside(self) -> Iterator[Element]:
        """Texts that readers see, those of other paragraphs left out."""
        return _texts(self.element)

    def beside(self) -> Iterator[Edit]:
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

    def run(self, form: Format, text: str) -> str:
        """A run of text."""
        return f'<w:r>{self._properties(form)}<w:t xml:space="preserve">{text}</w:t></w:r>'

    def void(self, piece: RunPiece, raw: str) -> str:
        """A part of a run in one with its properties; all else as it is."""
        return f"<w:r>{piece.format.properties}{raw}</w:r>" if piece.is_in_run else raw

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
