"""XLSX: texts of cells, comments, drawings, charts, headers and sheets of a workbook."""

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

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
    Value,
    attribute_value,
    content_value,
    formula_record,
    text_markup,
)
from transduce.localise.units import shortened
from transduce.localise.xlsx_tables import RELATIONS, Column, header_cells, named_columns
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
    archive, roots = read_archive(content, reading, rf"{XLSX_PARTS}|{RELATIONS}")
    texts = OfficeTexts()
    formulas = [
        element
        for root in roots.values()
        for element in root.descendants()
        if element.local_name in ("f", "formula1", "calculatedColumnFormula", "definedName")
    ]
    referred = {name for formula in formulas for name in COLUMN.findall(formula.raw)}
    book = _Workbook(texts, referred, header_cells(roots), {}, {})
    language: list[Edit] = []
    for name, root in roots.items():
        keys = Keys(shortened(name.removeprefix("xl/")))
        drawing_texts(root, keys, reading, texts)
        for element in root.descendants():
            reading.check()
            _add_element(element, keys, book)
            is_view = element.local_name == "sheetView" and reading.language
            if is_view and is_right_to_left(reading.language or ""):
                language.append(element.with_attribute("rightToLeft", "1"))
    document = texts.document(archive, language)
    tables = [*book.columns(roots)]
    render = functools.partial(named_columns, tables, document.render)
    return dataclasses.replace(document, render=render) if tables else document


class _Workbook(NamedTuple):
    """Texts of a workbook.

    referred: names of columns in formulas.  cells: of columns, by their places.  strings, names:
    those of cells and of columns, by their places.
    """

    texts: OfficeTexts
    referred: set[str]
    cells: Mapping[int, Element]
    strings: dict[int, _CellString]
    names: dict[int, Value]

    def columns(self, roots: Mapping[str, Element]) -> Iterator[list[Column]]:
        """The columns of each table."""
        shared = [
            string
            for name, root in roots.items()
            if name.lower() == "xl/sharedstrings.xml"
            for string in root.named("si")
        ]
        for root in roots.values():
            columns = []
            for element in root.named("tableColumn") if root.local_name == "table" else ():
                name, cell = element.attribute("name"), self.cells.get(element.begin)
                text = self._string(cell, shared) if cell else None
                if name and (shown := text or self.names.get(name.span.start)):
                    columns.append(Column(name, shown, cell))
            if columns:
                yield columns

    def _string(self, cell: Element, shared: Sequence[Element]) -> _CellString | None:
        """The text of a cell that is a string."""
        string, value = cell.child("is"), cell.child("v")
        if cell.get("t") == "s" and value and value.raw.strip().isdecimal():
            number = int(value.raw)
            string = shared[number] if number < len(shared) else None
        return self.strings.get(string.begin) if string else None


def _add_element(element: Element, keys: Keys, book: _Workbook) -> None:
    """Add the texts of an element; equal ones of a workbook are one segment."""
    name, texts, referred = element.local_name, book.texts, book.referred
    if name == "sheets":
        texts.add_sheets(element.children, "name", keys, r'!|(?<=\bsheet=")(?=[^"]*")')
    elif name in STRINGS and (element.child("t") or element.child("r")):
        string = _CellString(element, keys.next("string"))
        book.strings[element.begin] = string
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
        is_name = name == "tableColumn" and attribute == "name"
        if is_name and element.begin in book.cells:
            continue  # it is as in the cell
        for value in attribute_value(element, attribute, keys):
            if is_name:
                book.names[value.span.start] = value
            if value.segment.source not in referred:
                texts.add(value, "")


def _is_string(cell: Element) -> bool:
    """True for a cell of a string that no formula gives."""
    return cell.get("t") == "str" and cell.child("f") is None
