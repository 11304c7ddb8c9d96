"""ODF: texts, presentations, spreadsheets and drawings of LibreOffice."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import Document, Edit, Reading, Span
from transduce.localise.inline import escaped, to_markup
from transduce.localise.languages import base_of, is_right_to_left, is_same_language
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
)
from transduce.localise.units import shortened
from transduce.localise.xml import ATTRIBUTE, ENTITY, XML_TOKEN, Element, read_archive, read_xml

ODF_PARTS = r"(?:.*/)?(?:content|styles|meta)\.xml"
PARAGRAPHS = frozenset(("text:p", "text:h"))
WRAPPERS = frozenset(("text:span", "text:a", "text:meta"))
"""Elements in a paragraph that hold its text."""
ODF_VOIDS = {"text:line-break": "br", "text:tab": "tab"}
ODF_RANGE = re.compile(
    r"text:(?:bookmark|reference-mark|alphabetical-index-mark|toc-mark|user-index-mark)-(start|end)"
)
ODF_LEFT = frozenset(("text:tracked-changes", "table:tracked-changes", "math:math"))
"""Elements whose text is not shown, or is a formula."""
VALUES = re.compile(
    r"text:(?:.*(?:date|time|number|count|cycles|duration|name|initials|creator|measure|citation)"
    r"|sender-.*|sequence|script|page-.*|database-.*|dde-.*|execute-macro)"
)
"""Fields of dates, numbers and names, which stay."""
SHOWN = frozenset(("form:label", "form:title", "text:string-value", "text:key1", "text:key2"))
"""Attributes of texts, beside those of `SHOWN_OF`."""
SHOWN_OF: Mapping[str, frozenset[str]] = {
    "text:user-field-decl": frozenset(("office:string-value",)),
    "table:content-validation": frozenset(("table:title",)),
    "table:help-message": frozenset(("table:title",)),
    "table:error-message": frozenset(("table:title",)),
    "text:conditional-text": frozenset(("text:string-value-if-true", "text:string-value-if-false")),
}
HELD = frozenset(
    (
        *("svg:title", "svg:desc", "dc:title", "dc:description", "dc:subject", "meta:keyword"),
        *("meta:user-defined", "text:index-title-template", "text:index-entry-span"),
        *("presentation:header-decl", "presentation:footer-decl", "presentation:date-time-decl"),
    )
)
"""Elements, but fields, whose content is a text of its own."""
UNSHOWN_STYLE = re.compile(
    r"(?:fo:(?:language|country|script)|style:(?:language|country|script|rfc-language-tag)-?\w*"
    r"|officeooo:.*|style:name|style:family)"
)
"""Attributes of a style that no reader sees."""
FLAT = frozenset((".fodt", ".fods", ".fodp"))
"""Suffixes of files that are no archives."""
CELLS = frozenset(("table:table-cell", "table:covered-table-cell"))
BLANKS = {"\t": "tabulator", "\n": "line break"}
SMALL = re.compile("[1-9][0-9]?")
SPACES = re.compile("(?<= ) +")


def read_odf(content: bytes, reading: Reading) -> Document:
    """Read the paragraphs of a file, its headers, notes, comments, text boxes and tables, texts of
    cells, fields, forms and charts, alternative texts and the title; formulas, numbers, dates and
    deleted text stay."""
    if PurePath(reading.name).suffix.lower() in FLAT:
        decoded, root = read_xml(content, reading)
        roots: Mapping[str, Element] = {"content.xml": root}
    else:
        decoded, roots = read_archive(content, reading, ODF_PARTS)
    texts = OfficeTexts()
    common = [e for root in roots.values() for e in root.children if e.name == "office:styles"]
    for name, root in roots.items():
        if root.local_name != "math":
            styles = [e for e in root.children if e.name == "office:automatic-styles"]
            part = _OdfPart(Keys(shortened(name)), reading, texts, _looks([*common, *styles]))
            part.read(root)
    language = _odf_languages(roots, reading.language) if reading.language else ()
    return texts.document(decoded, language)


def _looks(groups: Sequence[Element]) -> dict[str, str]:
    """For each style of runs the first of the same look; "" for one that has none."""
    looks: dict[str, str] = {}
    first = {"": ""}
    for style in (style for group in groups for style in group.children):
        if style.get("style:family") == "text":
            name = style.get("style:name")
            attributes = (
                f"{match['name']}={match[0]}"
                for tag in (style, *style.descendants())
                for match in ATTRIBUTE.finditer(style.text, *tag.start)
                if not UNSHOWN_STYLE.fullmatch(match["name"])
            )
            looks[name] = first.setdefault(" ".join(sorted(attributes)), name)
    return looks


def _odf_languages(roots: Mapping[str, Element], language: str) -> Iterator[Edit]:
    """Edits of the language of the styles and the file."""
    base, _, region = language.partition("-")
    base = base_of(base)
    kind = "-asian" if base in ("ja", "ko", "zh") else ""
    is_rtl = is_right_to_left(language)
    kind = "-complex" if is_rtl or base in ("hi", "th") else kind
    prefix = "style" if kind else "fo"
    code, country = f"{prefix}:language{kind}", f"{prefix}:country{kind}"
    for root in roots.values():
        for element in root.descendants():
            if element.name == "dc:language":
                yield element.with_content(language)
            elif element.name == "style:text-properties" and element.attribute(code):
                if not is_same_language(element.get(code), language):
                    yield element.with_attribute(code, base)
                    yield element.with_attribute(country, region if len(region) == 2 else "none")
            elif is_rtl and element.name == "style:default-style":
                for properties in element.children:
                    if properties.name == "style:paragraph-properties":
                        yield properties.with_attribute("style:writing-mode", "rl-tb")


class _OdfPart(NamedTuple):
    """A part of a file, whose texts are added in the order of the file."""

    keys: Keys
    reading: Reading
    texts: OfficeTexts
    looks: Mapping[str, str]

    def read(self, parent: Element) -> None:
        """Add the texts in an element."""
        for element in parent.children:
            self.reading.check()
            name = element.name
            if name in ODF_LEFT:
                continue
            self._add_values(element, parent)
            if name in CELLS and self._is_value(element):
                for comment in element.children:
                    if comment.name == "office:annotation":
                        self.read(comment)
                continue
            if name in PARAGRAPHS:
                paragraph = _OdfParagraph(element, self.keys.next("paragraph"), self.looks)
                self.texts.unread += paragraph.unread()
                self.texts.add(paragraph, parent if parent.name in CELLS else None)
            self.read(element)

    def _add_values(self, element: Element, parent: Element) -> None:
        """Add the texts of attributes and fields."""
        name = element.name
        for attribute in (*SHOWN, *SHOWN_OF.get(name, ())):
            for value in attribute_value(element, attribute, self.keys):
                self.texts.add(value, value.segment.source)
        if name in CELLS and element.child("p"):
            for value in attribute_value(element, "office:string-value", self.keys):
                self.texts.add(value, element)
        is_inside = parent.name in PARAGRAPHS or parent.name in WRAPPERS
        is_field = is_inside and name.startswith("text:") and name not in WRAPPERS
        if name in HELD or (is_field and not VALUES.fullmatch(name)):
            for value in content_value(element, self.keys):
                self.texts.add(value, value.segment.source)
        if name == "office:spreadsheet":
            sheets = [e for e in element.children if e.name == "table:table"]
            self.texts.add_sheets(sheets, "table:name", self.keys, r"\.\$?[A-Z]{1,3}\$?[0-9]")

    def _is_value(self, cell: Element) -> bool:
        """True for a cell of a number or a date, or of a formula, whose text is recorded."""
        kind = cell.get("office:value-type", "string")
        formula = cell.attribute("table:formula")
        shown = " ".join(
            XML_TOKEN.sub("", child.raw) for child in cell.children if child.name in PARAGRAPHS
        )
        if formula and kind == "string" and any(map(str.isalpha, shown)):
            record = formula_record(self.keys, shown)
            self.texts.unread.append(record)
        return kind != "string" or formula is not None


class _OdfParagraph(Paragraph):
    """A paragraph or heading of ODF."""

    def __init__(self, element: Element, key: str, looks: Mapping[str, str]) -> None:
        self.looks = looks
        self.has_begun = False
        super().__init__(element, key, element.content)

    def run_pieces(self) -> Iterator[RunPiece]:
        """Texts between tags, with the spans and links around them."""
        return self._within(self.element, NO_FORMAT)

    def _within(self, parent: Element, form: Format) -> Iterator[RunPiece]:
        start = parent.content.start
        for child in parent.children:
            yield from self._characters(start, child.begin, form)
            start, number = child.end, child.get("text:c", "1")
            if child.name in WRAPPERS and not child.is_empty_tag:
                yield from self._within(child, self._inner(child, form))
            elif child.name == "text:s" and self.has_begun and SMALL.fullmatch(number):
                yield RunPiece(form, " " * int(number))
            elif mark := ODF_RANGE.fullmatch(child.name):
                self.ranges[mark[1].capitalize()].append(child.span)
            elif child.name != "text:soft-page-break":
                is_field = child.name != "text:ruby"
                name = ODF_VOIDS.get(child.name, "x")
                yield RunPiece(form, "", child.span, name=name, is_field=is_field)
        yield from self._characters(start, parent.content.end, form)

    def texts_inside(self) -> Iterator[Element]:
        """Texts with readings beside them."""
        return (e for e in self.element.descendants() if e.name == "text:ruby-base")

    def _inner(self, child: Element, form: Format) -> Format:
        """The format in an element; a span without a look of its own has that around it."""
        tag = self.text[slice(*child.start)]
        if child.name == "text:span":
            style = child.attribute("text:style-name")
            look = self.looks.get(style.text, style.text) if style else ""
            if not look:
                return form
            assert style is not None
            tag = tag.replace(self.text[slice(*style.span)], escaped(look))
        return Format(form.opened + tag, f"</{child.name}>{form.closed}", "")

    def _characters(self, start: int, end: int, form: Format) -> Iterator[RunPiece]:
        """The text between two tags, and what is neither text nor tag."""
        while start < end:
            token = XML_TOKEN.search(self.text, start, end)
            stop = token.start() if token else end
            for entity in ENTITY.finditer(self.text, start, stop):
                yield from self._plain(start, entity.start(), form)
                yield RunPiece(form, "", Span(*entity.span()))
                start = entity.end()
            yield from self._plain(start, stop, form)
            if token and token["raw"]:
                self.has_begun = True
                yield RunPiece(form, escaped(token[0][9:-3]))
            start = token.end() if token else end

    def _plain(self, start: int, end: int, form: Format) -> Iterator[RunPiece]:
        if raw := re.sub("[ \t\r\n]+", " ", self.text[start:end]):
            self.has_begun |= raw != " "
            yield RunPiece(form, to_markup(raw, {}))

    def run(self, form: Format, text: str) -> str:
        """A text whose blanks beside others are elements."""
        text = SPACES.sub(lambda blank: _blanks(len(blank[0])), text)
        if blank := re.search("[\t\n]", text):
            raise DataError(
                f"{self.segment.key}: the translation has a {BLANKS[blank[0]]}; remove it"
            )
        return text


def _blanks(number: int) -> str:
    """Blanks that are shown beside another."""
    return "<text:s/>" if number == 1 else f'<text:s text:c="{number}"/>'
