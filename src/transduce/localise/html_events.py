"""Positions of the parts of an HTML page, broken or not: tags, comments, text."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from transduce.localise.document import Span
from transduce.localise.tags import RAW, REST, VOID, Kind, Tag

MARKUP = re.compile(
    r"<(?P<close>/?)(?P<name>[A-Za-z][^\s/>]*)|<(?P<comment>!--)|<(?:[!?]|/(?=.))", re.DOTALL
)
"""Beginning of a part that is not text."""
REST_OF_TAG = re.compile(REST)
ATTRIBUTE = re.compile(
    r"""[\s/"'](?P<name>[^\s"'<>/=]+)\s*=\s*"""
    r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s"'=<>`]+))"""
)


class Attribute(NamedTuple):
    """An attribute of a start tag; the span includes no quotes."""

    name: str
    span: Span
    quote: str


def tags_of(text: str) -> Iterator[Tag]:
    """All parts of a page, in order and without gaps, in time proportional to its length.

    Comments, declarations and instructions are void tags without a name.  As browsers do (HTML
    Standard, 13.2.5), an unfinished tag or comment takes the rest of the page.
    """
    start = 0
    while start < len(text):
        match = MARKUP.match(text, start)
        kind: Kind = "void"
        name = ""
        if match is None:
            kind, end = "text", text.find("<", start + (text[start] == "<"))
        elif match["comment"]:
            end = _past(text, "-->", match.end() - 2)
        elif match["name"] and not match["close"]:
            end = rest.end() if (rest := REST_OF_TAG.match(text, match.end())) else -1
            if end != -1:
                name = match["name"].lower()
                kind = "void" if name in VOID or text[end - 2] == "/" else "open"
        else:
            end = _past(text, ">", match.end())
            if match["name"]:
                kind, name = "close", match["name"].lower()
        end = len(text) if end == -1 else end
        yield Tag(kind, name, Span(start, end))
        start = end
        if kind == "open" and name in RAW:
            closing = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, start)
            end = closing.start() if closing else len(text)
            if start < end:
                yield Tag("text", "", Span(start, end))
            start = end


def _past(text: str, end: str, start: int) -> int:
    """Place after the next `end`; -1 without it."""
    offset = text.find(end, start)
    return offset if offset == -1 else offset + len(end)


def attributes(text: str, tag: Span) -> Iterator[Attribute]:
    """Attributes with a value of a start tag; of equal names the first."""
    names = set()
    for match in ATTRIBUTE.finditer(text, tag.start, tag.end):
        name = match["name"].lower()
        if name not in names:
            names.add(name)
            quote = {"double": '"', "single": "'"}.get(match.lastgroup or "", "")
            yield Attribute(name, Span(*match.span(match.lastindex or 0)), quote)


class Places:
    """Lines and columns, both from 1, of characters in a text."""

    def __init__(self, text: str) -> None:
        self._starts: Sequence[int] = [0, *(m.end() for m in re.finditer("\r\n?|\n", text))]

    def name(self, offset: int) -> str:
        """Line and column of a character."""
        line = bisect.bisect_right(self._starts, offset)
        return f"line {line}, column {offset - self._starts[line - 1] + 1}"


def values(text: str, tag: Span) -> Mapping[str, str]:
    """Values of the attributes of a start tag, in lower case."""
    return {a.name: text[a.span.start : a.span.end].lower() for a in attributes(text, tag)}
