"""reStructuredText: titles, paragraphs, items, and the texts of directives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from transduce.localise.document import Document, Reading, Record, Span, Tag
from transduce.localise.html import Places
from transduce.localise.marked import LINE, MarkedTexts

RST_SIGNS = "\\*`|_"
_BEFORE = r"(?<![^\s\-:/'\"<(\[{«“„‘¿¡（「、。，])"
_AFTER = r"(?![^\s\-.,:;!?\\/'\")\]}>»“”’…。，、：；）」])"
RST_MARK = re.compile(
    r"\\\s|(?P<escape>\\\S)"
    rf"|{_BEFORE}(?:(?::[\w.+:-]{{1,60}}:)?`[^`<]*[^\s`<](?P<close>\s*<[^<>`]*>`_{{0,2}}){_AFTER}"
    r"|:(?P<text>guilabel|emphasis|strong|dfn|sub|sup|title|title-reference|subscript|superscript):"
    rf"`[^`<]+(?P<end>`){_AFTER}"
    rf"|``(?:[^`]|`(?!`))+``{_AFTER}"
    rf"|(?::[\w.+:-]{{1,60}}:)?`[^`]+`(?:_{{1,2}}|:[\w.+:-]{{1,60}}:)?{_AFTER}"
    rf"|(?P<sign>\*\*?)(?=\S)[^*]*?[^\s*\\](?P=sign){_AFTER}|\|[^|\s][^|]*\|_{{0,2}}{_AFTER}"
    rf"|\[[^\]\s]+\]_{_AFTER}|\w[\w.-]{{0,60}}__?{_AFTER})|::\s*$",
    re.DOTALL,
)
"""A mark: code, a reference, emphasis, a substitution, or the sign before a block of code."""
ITEM = re.compile(
    r"[-*+•‣]\s+|(?:\d+|[A-Za-z#]|[ivxlcdmIVXLCDM]+)[.)]\s+|\((?:\d+|[A-Za-z#])\)\s+"
    r"|:(?P<field>[^:`\s](?:[^:`]|:(?!\s))*):(?:\s+|$)|\|\s+|\.\.\s+\[[^\]]+\]\s+"
    r"|(?:-\w|--[\w-]+)(?:[ =][A-Z<]\S*)?(?:, --?[\w-]+(?:[ =][A-Z<]\S*)?)*\s{2,}"
)
"""Signs before the text of an item, a field, a line, a note or an option."""
FACTS = re.compile(
    r"(?i)authors?|contact|address|version|revision|status|date|orphan|\w*tocdepth|r?type.*"
)
"""Fields of facts."""
DIRECTIVE = re.compile(r"\.\.\s+(?:\|[^|]+\|\s+)?(?P<name>[\w:+.-]+)::(?:\s+|$)")
TITLED = frozenset(
    (
        *("admonition", "attention", "caution", "centered", "contents", "csv-table", "danger"),
        *("deprecated", "dropdown", "epigraph", "error", "highlights", "hint", "important"),
        *("list-table", "note", "pull-quote", "replace", "rubric", "seealso", "sidebar"),
        *("tab-item", "table", "tip", "todo", "topic", "versionadded", "versionchanged"),
        *("versionremoved", "warning"),
    )
)
"""Directives with texts as argument and content."""
BODIED = frozenset(
    (
        *("card", "class", "compound", "container", "figure", "glossary", "grid", "image", "only"),
        "tab-set",
    )
)
"""Directives with texts as content alone."""
STAYING = frozenset(
    (
        *("code", "code-block", "currentmodule", "default-role", "digraph", "doctest", "graphviz"),
        *("highlight", "include", "index", "literalinclude", "math", "meta", "module"),
        *("moduleauthor", "parsed-literal", "plot", "productionlist", "program", "raw", "role"),
        *("sectionauthor", "sectnum", "sourcecode", "testcode", "testoutput", "testsetup"),
        *("toctree", "unicode"),
    )
)
"""Directives of code and names."""
OPTION = re.compile(r"\s*:(?P<option>[\w-]+):(?:\s+|$)")
SHOWN = ("alt", "caption", "title", "subtitle")
"""Options with a text."""
ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1+\s*")
BORDER = re.compile(r"={2,}(?:\s+={2,})+\s*|\+(?:[-=]+\+)+\s*")

STARTS = re.compile(f"{ITEM.pattern}|(?:\\.\\.|__|>>>)(?: |$)")
"""Beginnings of lines that are no paragraph."""


class _Line(NamedTuple):
    text: str
    start: int

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip())


def read_rst(content: bytes, reading: Reading) -> Document:
    """Read the texts of a page; code, addresses, names, comments and tables of characters stay."""
    decoded = reading.decode(content)
    page = _Page(MarkedTexts(decoded, reading.check, RST_SIGNS, STARTS), decoded.text)
    number = 0
    while number < len(page.lines):
        number = page.read(number, page.lines[number].indent)
    return page.texts.document(page.unread)


class _Page:
    def __init__(self, texts: MarkedTexts, text: str) -> None:
        self.texts = texts
        self.places = Places(text)
        self.unread: list[Record] = []
        self.lines = [_Line(row[0].rstrip(), row.start()) for row in LINE.finditer(text)]

    def read(self, number: int, column: int) -> int:
        """Read the block that begins in a column of a line; the number of the line behind it."""
        line = self.lines[number]
        while item := ITEM.match(line.text, column):
            if item["field"] and FACTS.fullmatch(item["field"]):
                return number + 1
            column = item.end()
        rest = line.text[column:]
        if not rest:
            return number + 1
        if directive := DIRECTIVE.match(rest):
            return self._directive(number, column, directive)
        if rest == ".." or rest.startswith((".. ", "__ ")):
            return self._behind(number, column)
        if rest.startswith(">>>") or BORDER.fullmatch(rest):
            if rest.startswith(">>>"):
                return self._paragraph_end(number, column)
            end = self._end_of_table(number, rest)
            self._leave(number, end, "it is a table of characters")
            return end
        adorned = [bool(ADORNMENT.fullmatch(row.text)) for row in self.lines[number : number + 3]]
        if adorned[0]:
            if adorned[1:] != [False, True] or not self.lines[number + 1].text:
                return number + 1
            self._add(number + 1, 0, number + 2, (number, number + 2))
            return number + 3
        if adorned[1:2] == [True] and len(self.lines[number + 1].text) >= min(len(rest), 4):
            self._add(number, 0, number + 1, (number + 1,))
            return number + 2
        return self._paragraph(number, column)

    def _paragraph(self, number: int, column: int) -> int:
        end = self._paragraph_end(number, column)
        self._add(number, column, end)
        if self.lines[end - 1].text.endswith("::"):
            indent = min(self.lines[number].indent, self.lines[end - 1].indent)
            return self._behind(end - 1, indent)
        return end

    def _paragraph_end(self, number: int, column: int) -> int:
        """The line behind a paragraph; a line with deeper ones behind it is a term."""
        end = number + 1
        while end < len(self.lines) and self.lines[end].text and self.lines[end].indent == column:
            end += 1
        return end

    def _behind(self, number: int, indent: int) -> int:
        """The line behind all that is deeper than a column."""
        end = number + 1
        while end < len(self.lines) and (
            not self.lines[end].text or self.lines[end].indent > indent
        ):
            end += 1
        return end

    def _end_of_table(self, number: int, border: str) -> int:
        end = number + 1
        while end < len(self.lines):
            before = self.lines[end - 1].text.strip()
            if not self.lines[end].text and (border[0] == "+" or BORDER.fullmatch(before)):
                break
            end += 1
        return end

    def _directive(self, number: int, column: int, directive: re.Match[str]) -> int:
        name = directive["name"].lower()
        is_body = name in TITLED or name in BODIED or ":" in name or name.startswith("auto")
        if not is_body:
            end = self._behind(number, column)
            if name not in STAYING:
                self._leave(number, end, f"the directive {name} is not known")
            return end
        start = column + directive.end()
        following = number + 1
        if name.startswith(("version", "deprecated")):
            start += len(self.lines[number].text[start:].partition(" ")[0]) + 1
        while following < len(self.lines) and self._goes_on(following, column):
            following += 1
        if name in TITLED:
            self._add(number, start, following)
        while following < len(self.lines) and self.lines[following].indent > column:
            option = OPTION.match(self.lines[following].text)
            if option is None:
                break
            if option["option"] in SHOWN:
                self._add(following, option.end(), following + 1)
            following += 1
        return following

    def _goes_on(self, number: int, column: int) -> bool:
        line = self.lines[number]
        return bool(line.text) and line.indent > column and not ITEM.match(line.text.lstrip())

    def _add(self, number: int, column: int, end: int, adornments: tuple[int, ...] = ()) -> None:
        span = Span(self.lines[number].start + column, self._end(end - 1))
        if span.start < span.end:
            rules = [Span(self.lines[i].start, self._end(i)) for i in adornments]
            self.texts.add(self.places.name(span.start), span, rst_parts, rules)

    def _end(self, number: int) -> int:
        return self.lines[number].start + len(self.lines[number].text)

    def _leave(self, number: int, end: int, reason: str) -> None:
        lines = [line.text.strip() for line in self.lines[number:end]]
        text = " ".join(filter(None, lines))
        if any(map(str.isalpha, text)):
            key = self.places.name(self.lines[number].start)
            self.unread.append(Record(key, text, text, "unread", reason))


def rst_parts(text: str, span: Span) -> Iterator[Tag]:
    """Texts and marks of a span."""
    copied = start = span.start
    while mark := RST_MARK.search(text, start, span.end):
        start = mark.end()
        if mark["escape"]:
            continue
        yield Tag("text", "", Span(copied, mark.start()))
        inner = next((g for g in ("close", "end", "sign") if mark[g]), None)
        if inner is None:
            yield Tag("void", "x", Span(*mark.span()))
            copied = mark.end()
            continue
        if inner == "sign":
            length = len(mark["sign"])
            begin, last = mark.start() + length, Span(mark.end() - length, mark.end())
        else:
            begin, last = text.index("`", mark.start()) + 1, Span(mark.start(inner), mark.end())
        yield Tag("open", "m", Span(mark.start(), begin))
        yield Tag("text", "", Span(begin, last.start))
        yield Tag("close", "m", last)
        copied = last.end
    yield Tag("text", "", Span(copied, span.end))
