"""DrawingML: texts of shapes, charts, diagrams and alternative texts, and PPTX."""

import re
from collections.abc import Iterator

from transduce.localise.document import Document, Edit, Reading
from transduce.localise.languages import is_right_to_left
from transduce.localise.runs import (
    NO_FORMAT,
    Format,
    Keys,
    OfficeTexts,
    Paragraph,
    RunPiece,
    attribute_value,
    content_value,
    text_markup,
    visible_span,
)
from transduce.localise.units import shortened
from transduce.localise.xml import Element, read_archive

PROPERTIES = (
    r"(?i:docProps/core[0-9]*\.xml|package/services/metadata/core-properties/[^/]+\.psmdcp)"
)
"""Parts with the title of a document, of Office and of the packages of .NET."""
NAMED = frozenset(("title", "subject", "description", "keywords", "category"))
"""Properties of a document that readers see."""
UNSHOWN_PROPERTY = re.compile(
    r"""\s(?:lang|altLang|dirty|err|smtClean|noProof|bmk)=(?:"[^"]*"|'[^']*')"""
    r"|<a:extLst>.*?</a:extLst>",
    re.DOTALL,
)
"""Parts of a formatting that no reader sees."""
UNFORMATTED = re.compile(r"<a:rPr\s*(?:/>|>\s*</a:rPr>)")
CACHES = frozenset(("strCache", "strLit", "lvl"))
"""Parents of the points of a chart that are texts."""
AROUND = frozenset(("a:pPr", "a:endParaRPr"))
PPTX_PARTS = (
    r"ppt/(?:slides|slideLayouts|slideMasters|notesSlides|notesMasters|handoutMasters|comments"
    rf"|charts|diagrams|drawings)/[^/]+\.xml|{PROPERTIES}"
)


class DrawingParagraph(Paragraph):
    """A paragraph of DrawingML."""

    def __init__(self, element: Element, key: str, language: str | None) -> None:
        self.language = language
        super().__init__(element, key, visible_span(element, AROUND))

    def run_pieces(self) -> Iterator[RunPiece]:
        """Texts of runs, breaks, fields."""
        for child in self.element.children:
            if child.name == "a:r":
                properties = child.child("rPr")
                raw = self.text[slice(*properties.span)] if properties else ""
                shown = UNSHOWN_PROPERTY.sub("", raw)
                form = Format("", "", "" if UNFORMATTED.fullmatch(shown) else shown)
                if text := child.child("t"):
                    yield RunPiece(form, text_markup(text.raw))
            elif child.name not in AROUND:
                name, is_field = ("br" if child.name == "a:br" else "x"), child.name == "a:fld"
                yield RunPiece(NO_FORMAT, "", child.span, name=name, is_field=is_field)

    def run(self, form: Format, text: str) -> str:
        """A run of text in its language."""
        properties = form.properties or "<a:rPr/>"
        if self.language:
            properties = properties.replace("<a:rPr", f'<a:rPr lang="{self.language}"', 1)
        elif not form.properties:
            properties = ""
        return f"<a:r>{properties}<a:t>{text}</a:t></a:r>"

    def beside(self) -> Iterator[Edit]:
        """Edit that makes the paragraph run from the right, if its language does."""
        if not (self.language and is_right_to_left(self.language)):
            return
        if properties := self.element.child("pPr"):
            yield properties.with_attribute("rtl", "1")
        else:
            start = self.element.content.start
            yield Edit(self.element.content._replace(end=start), '<a:pPr rtl="1"/>')


def drawing_texts(root: Element, keys: Keys, reading: Reading, texts: OfficeTexts) -> None:
    """Add the paragraphs, names of charts and alternative texts of a part, and comments."""
    for element in root.descendants():
        reading.check()
        name = element.local_name
        if element.name == "a:p":
            texts.add(DrawingParagraph(element, keys.next("paragraph"), reading.language))
        elif name in ("docPr", "cNvPr"):
            for attribute in ("descr", "title"):
                for value in attribute_value(element, attribute, keys):
                    texts.add(value, root)
        elif name == "v" and element.parent and _is_chart_text(element.parent):
            for value in content_value(element, keys):
                texts.add(value, root)
        elif element.name in ("p:text", "p15:text"):
            for value in content_value(element, keys):
                texts.add(value)
    if root.local_name == "coreProperties":
        for element in root.children:
            if element.local_name in NAMED:
                for value in content_value(element, keys):
                    texts.add(value)


def _is_chart_text(parent: Element) -> bool:
    """True for a point of texts in a chart, or a name of a series."""
    above = parent.parent.local_name if parent.parent else ""
    return parent.local_name == "tx" or (parent.local_name == "pt" and above in CACHES)


def read_pptx(content: bytes, reading: Reading) -> Document:
    """Read the texts of slides, their layouts, notes and comments, of charts and diagrams, the
    alternative texts of pictures, and the title."""
    archive, roots = read_archive(content, reading, PPTX_PARTS)
    texts = OfficeTexts()
    for name, root in roots.items():
        drawing_texts(root, Keys(shortened(name.removeprefix("ppt/"))), reading, texts)
    return texts.document(archive, ())
