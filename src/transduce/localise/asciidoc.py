"""AsciiDoc: headings, paragraphs, items, cells, titles, alternative texts and footnotes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from transduce.localise.document import Document, Reading, Span, Tag
from transduce.localise.html import Places
from transduce.localise.marked import LINE, MarkedTexts

_BEFORE = r"(?<![\w:;}`*_#])"
_LINK = r"(?:link:|xref:|mailto:|image:(?!:)|https?://|ftp://|irc://)[^\s\[\]<>]{1,500}"
ADOC_MARK = re.compile(
    r"\+\+\+.*?\+\+\+|``.+?``|(?<!\w)`[^`\n]+`(?!\w)|\{[A-Za-z_][\w-]*\}|<<[^<>,]+>>|\(\(\([^()]+\)\)\)"
    r"|(?P<note>footnote:[\w-]{0,80}\[)(?P<inside>[^\[\]]*)\]"
    r"|(?:pass|stem|latexmath|asciimath|kbd|anchor|indexterm|icon|menu):[^\s\[]{0,200}\[[^\[\]]*\]"
    rf"|\[\[[^\[\]]{{1,200}}\]\]|(?<!\w){_LINK}\[\]|(?P<break>[ \t]\+\r?\n)|\\(?=[*_`#{{<\[])"
    rf"|(?P<link>(?<!\w){_LINK}\[|btn:\[|<<[^<>,]+,)(?P<text>[^\[\]<>]+)(?P<end>\]|>>)"
    r"|(?P<wide>(?:\[[^\[\]\s]+\])?(?P<double>\*\*|__|\#\#))(?P<inner>\S[^*_\#]*)(?P=double)"
    rf"|{_BEFORE}(?P<open>(?:\[[^\[\]\s]+\])?(?P<sign>[*_\#]))(?P<words>\S(?:[^*_\#]*?\S)?)(?P=sign)"
    r"(?!\w)|(?P<small>[\^~])(?P<raised>[^\s\^~]+)(?P=small)",
    re.DOTALL,
)
"""A mark: code, a reference, a footnote, a link, emphasis, a break."""
ADOC_ITEM = re.compile(
    r"(?:=+|#+|\*+|-|\.+|[0-9]+\.|[a-zA-Z]\.)[ \t]+(?:\[[ xX*]\][ \t]+)?|<[0-9.]+>[ \t]+"
    r"|\.(?=[^\s.])|(?:NOTE|TIP|IMPORTANT|WARNING|CAUTION):[ \t]+"
)
"""Signs before the text of a heading, an item, a title or an admonition."""
TERM = re.compile(r"[ \t]*(?P<term>\S.*?)(?::{2,4}|;;)(?:[ \t]+|$)")
STAYING = re.compile(r":!?[\w-]+!?:(?:\s|$)|//|\[.*\]$|\+$|<<<$|'''$|--$|[*=_]{4,}$|,===$|:===$")
"""Lines of attributes, comments and delimiters."""
CODE_BLOCK = re.compile(r"(-{4,}|\.{4,}|\+{4,}|/{4,}|```|,={3,}|:={3,})")
CODE_STYLE = re.compile(r"\[(?:source|listing|literal|stem|latexmath|asciimath|pass)?[,%\]]")
MACRO = re.compile(r"(?P<name>\w+)::[^\s\[]*\[(?P<text>[^\]]*)\]$")
CELL_SIGN = re.compile(r"(?:[0-9.+*<^>]{0,12}[adehlmsv]?)?(?<!\\)\|")

_STARTS = (ADOC_ITEM, TERM, STAYING, CODE_BLOCK)
STARTS = re.compile("|".join((*(pattern.pattern for pattern in _STARTS), r"\s", r"\|")))
"""Beginnings of lines that are no paragraph."""


def read_asciidoc(content: bytes, reading: Reading) -> Document:
    """Read the texts of a page; attributes, code, comments, addresses and names stay."""
    decoded = reading.decode(content)
    text, places = decoded.text, Places(decoded.text)
    texts = MarkedTexts(decoded, reading.check, starts=STARTS)
    block: list[Span] = []
    fence, is_code, is_table, in_header = "", False, False, False

    def add(start: int, end: int) -> None:
        if text[start:end].strip():
            texts.add(places.name(start), Span(start, end), adoc_parts)
            for mark in ADOC_MARK.finditer(text, start, end):
                if mark["note"]:
                    inside = Span(*mark.span("inside"))
                    texts.add(places.name(inside.start), inside, adoc_parts)

    def flush() -> None:
        if block:
            add(block[0].start, block[-1].end)
        block.clear()

    for row in LINE.finditer(text):
        line, start = row[0].rstrip(), row.start()
        end, code = start + len(line), CODE_BLOCK.fullmatch(line)
        if fence or code or (not block and line.startswith("```")):
            flush()
            fence = "" if line == fence else fence or ("```" if line.startswith("```") else line)
            is_code = False
            continue
        if not line:
            flush()
            is_code = in_header = False
            continue
        if line.startswith("|==="):
            flush()
            is_table, is_code = not is_table, False
        elif is_code or in_header or STAYING.match(line):
            flush()
            is_code = is_code or bool(CODE_STYLE.match(line))
        elif macro := MACRO.fullmatch(line):
            flush()
            alternative = macro["text"].split(",")[0]
            if macro["name"] == "image" and "=" not in alternative:
                add(start + macro.start("text"), start + macro.start("text") + len(alternative))
        elif is_table:
            for first, last in _cells(line):
                add(start + first, start + last)
        elif (term := TERM.match(line)) and not block:
            add(start + term.start("term"), start + term.end("term"))
            if term.end() < len(line):
                block.append(Span(start + term.end(), end))
        elif item := ADOC_ITEM.match(line.lstrip()):
            flush()
            block.append(Span(end - len(line.lstrip()) + item.end(), end))
            if line.startswith(("=", "#", ".")) and (line[0] != "." or not item[0].endswith(" ")):
                in_header = start == 0 and line.startswith("= ")
                flush()
        elif block or not line[0].isspace():
            block.append(Span(start, end))
    flush()
    return texts.document()


def _cells(line: str) -> Iterator[tuple[int, int]]:
    """Places of the cells of a row; the first goes on from the row before."""
    start = 0
    for sign in CELL_SIGN.finditer(line):
        yield start, sign.start()
        start = sign.end()
    yield start, len(line)


def adoc_parts(text: str, span: Span) -> Iterator[Tag]:
    """Texts and marks of a span."""
    copied = span.start
    for mark in ADOC_MARK.finditer(text, *span):
        yield Tag("text", "", Span(copied, mark.start()))
        copied = mark.end()
        groups = ("text", "inner", "words", "raised")
        group = next((name for name in groups if mark[name] is not None), None)
        if group is None:
            yield Tag("void", "br" if mark["break"] else "x", Span(*mark.span()))
            continue
        yield Tag("open", "m", Span(mark.start(), mark.start(group)))
        yield Tag("text", "", Span(*mark.span(group)))
        yield Tag("close", "m", Span(mark.end(group), mark.end()))
    yield Tag("text", "", Span(copied, span.end))
