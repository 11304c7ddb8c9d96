"""XLSX: texts of cells, comments, drawings, charts, headers and sheets of a workbook."""

import re
from collections.abc import Iterator, Mapping

from transduce.localise.document import Document, Edit, Reading, Record, Span
from transduce.localise.drawing import PROPERTIES, drawing_texts
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
    formula_record,
    text_markup,
)
from transduce.localise.units import shortened
from transduce.localise.xml import Element, read_archive

XLSX_PARTS = (
    r"(?i:xl/(?:sharedStrings|workbook|comments[^/]*|(?:worksheets|chartsheets|comments|tables"
    r"|threadedComments|charts|drawings|diagrams|pivotTables|pivotCache)/[^/]+)\.xml)|"
    rf"{PROPERTIES}"
)
STRINGS = frozenset(("si", "is", "text"))
"""Elements that hold a string with its runs."""
PHONETIC = frozenset(("rPh", "phoneticPr"))
HEADERS = re.compile("(?:odd|even|first)(?:Header|Footer)")
SECTIONS = re.compile("&amp;[LCR]")
CODE = re.compile(r'&amp;(?:&quot;.*?&quot;|"[^"]*"|K[0-9A-Fa-f]{6}|K\d\d[+-]\d{3}|[0-9]+|.)')
"""A code of a header, such as the number of the page."""
SHOWN_OF: Mapping[str, tuple[str, ...]] = {
    "dataValidation": ("promptTitle", "prompt", "errorTitle", "error"),
    "tableColumn": ("name", "totalsRowLabel"),
    "hyperlink": ("tooltip",),
    "filter": ("val",),
    "customFilter": ("val",),
}
"""Attributes that readers see, or that repeat the text of a cell."""
COLUMN = re.compile(r"\[@?([^\[\]@#<]+)\]")
"""A reference of a formula to a column of a table."""


class _CellString(Paragraph):
    """A string of a cell or comment: a text, or runs of formatted text."""

    def __init__(self, element: Element, key: str) -> None:
        self.prefix = element.name[: -len(element.local_name)]
        self.is_plain = element.child("r") is None
        children = [e for e in element.children if e.local_name not in PHONETIC]
        span = Span(children[0].begin, children[-1].end) if children else Span(0, 0)
        super().__init__(element, key, span)

    def run_pieces(self) -> Iterator[RunPiece]:
        """Texts of the string, or of its runs."""
        for child in self.element.children:
            if child.local_name == "t":
                yield RunPiece(NO_FORMAT, text_markup(child.raw))
            elif child.local_name == "r" and (text := child.child("t")):
                properties = child.child("rPr")
                raw = self.text[slice(*properties.span)] if properties else ""
                yield RunPiece(Format("", "", raw), text_markup(text.raw))

    def run(self, form: Format, text: str) -> str:
        """A run of text, or the text."""
        tag = f'<{self.prefix}t xml:space="preserve">{text}</{self.prefix}t>'
        if self.is_plain:
            return tag
        return f"<{self.prefix}r>{form.properties}{tag}</{self.prefix}r>"


class _Section(Paragraph):
    """A section of a header of printed pages: a text with codes."""

    def run_pieces(self) -> Iterator[RunPiece]:
        """Texts and codes."""
        start = self.span.start
        for code in CODE.finditer(self.text, *self.span):
            yield RunPiece(NO_FORMAT, text_markup(self.text[start : code.start()]))
            yield RunPiece(NO_FORMAT, "", Span(*code.span()))
            start = code.end()
        yield RunPiece(NO_FORMAT, text_markup(self.text[start : self.span.end]))

    def run(self, form: Format, text: str) -> str:
        """The text, in which a sign is no code."""
        return text.replace("&amp;", "&amp;&amp;")


def read_xlsx(content: bytes, reading: Reading) -> Document:
    """Read the texts of cells and comments, names of sheets and columns, headers, drawings, charts
    and alternative texts; formulas, numbers and dates stay."""
    archive, roots = read_archive(content, reading, XLSX_PARTS)
    texts = OfficeTexts()
    formulas = [
        element
        for root in roots.values()
        for element in root.descendants()
        if element.local_name in ("f", "formula1", "calculatedColumnFormula", "definedName")
    ]
    referred = {name for formula in formulas for name in COLUMN.findall(formula.raw)}
    language: list[Edit] = []
    for name, root in roots.items():
        keys = Keys(shortened(name.removeprefix("xl/")))
        drawing_texts(root, keys, reading, texts)
        for element in root.descendants():
            reading.check()
            _add_element(element, keys, texts, referred)
            is_view = element.local_name == "sheetView" and reading.language
            if is_view and is_right_to_left(reading.language or ""):
                language.append(element.with_attribute("rightToLeft", "1"))
    return texts.document(archive, language)


def _add_element(element: Element, keys: Keys, texts: OfficeTexts, referred: set[str]) -> None:
    """Add the texts of an element; equal ones of a workbook are one segment, by which the columns
    of tables have the names in their cells."""
    name = element.local_name
    if name == "sheets":
        texts.add_sheets(element.children, "name", keys, r'!|(?<=\bsheet=")(?=[^"]*")')
    elif name in STRINGS and (element.child("t") or element.child("r")):
        string = _CellString(element, keys.next("string"))
        if string.segment.source in referred:
            reason = "formulas refer to the column by its name"
            source = string.segment.source
            texts.unread.append(Record(string.segment.key, source, source, "unread", reason))
        elif any(map(str.isalpha, string.segment.source)):
            texts.add(string, "")
    elif name == "text" or (name == "v" and element.parent and _is_string(element.parent)):
        for value in content_value(element, keys):
            texts.add(value, "")
    elif name == "v" and element.parent and element.parent.get("t") == "str":
        if any(map(str.isalpha, element.raw)):
            texts.unread.append(formula_record(keys, element.raw))
    elif HEADERS.fullmatch(name):
        cuts = [m.start() for m in SECTIONS.finditer(element.text, *element.content)]
        start = element.content.start
        for end in (*cuts, element.content.end):
            section = _Section(element, keys.next(name), Span(start, end))
            if any(map(str.isalpha, section.segment.source)):
                texts.add(section, "")
            start = end
    for attribute in SHOWN_OF.get(name, ()):
        for value in attribute_value(element, attribute, keys):
            if value.segment.source not in referred:
                texts.add(value, "")


def _is_string(cell: Element) -> bool:
    """True for a cell of a string that no formula gives."""
    return cell.get("t") == "str" and cell.child("f") is None
