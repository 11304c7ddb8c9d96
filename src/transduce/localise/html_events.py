"""Positions of the parts of an HTML page, broken or not: tags, comments, text."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from transduce.localise.document import Span
from transduce.localise.tags import RAW, REST, VOID

MARKUP = re.compile(
    r"<(?P<close>/?)(?P<name>[A-Za-z][^\s/>]*)|<(?P<comment>!--)|<(?:[!?]|/(?=.))", re.DOTALL
)
"""Beginning of a part that is not text."""
REST_OF_TAG = re.compile(REST)
ATTRIBUTE = re.compile(
    r"""[\s/"'](?P<name>[^\s"'<>/=]+)\s*=\s*"""
    r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s"'=<>`]+))"""
)


class Event(NamedTuple):
    """A part of a page.  other: a comment, a declaration or a processing instruction."""

    span: Span
    kind: Literal["start", "end", "text", "other"]
    name: str = ""
    empty: bool = False
    """True for a start tag of a void element."""


class Attribute(NamedTuple):
    """An attribute of a start tag; the span includes no quotes."""

    name: str
    span: Span
    quote: str


def events_of(text: str) -> Iterator[Event]:
    """All parts of a page, in order and without gaps, in time proportional to its length.

    As browsers do (HTML Standard, 13.2.5), an unfinished tag or comment takes the rest of the page.
    """
    place = 0
    while place < len(text):
        match = MARKUP.match(text, place)
        if match is None:
            end = text.find("<", place + 1) if text[place] == "<" else text.find("<", place)
            event = Event(Span(place, len(text) if end == -1 else end), "text")
        elif match["name"] and match["close"]:
            event = Event(Span(place, _past(text, ">", match.end())), "end", match["name"].lower())
        elif match["name"]:
            event = _start_tag(text, match)
        elif match["comment"]:
            event = Event(Span(place, _past(text, "-->", match.end() - 2)), "other")
        else:
            event = Event(Span(place, _past(text, ">", match.end())), "other")
        yield event
        place = event.span.end
        if event.kind == "start" and event.name in RAW and not event.empty:
            found = re.compile(rf"</{event.name}(?=[\s/>])", re.IGNORECASE).search(text, place)
            end = found.start() if found else len(text)
            if place < end:
                yield Event(Span(place, end), "text")
            place = end


def _start_tag(text: str, match: re.Match[str]) -> Event:
    name = match["name"].lower()
    tag = REST_OF_TAG.match(text, match.end())
    if tag is None:
        return Event(Span(match.start(), len(text)), "other")
    return Event(Span(match.start(), tag.end()), "start", name, name in VOID or tag[0][-2:] == "/>")


def _past(text: str, end: str, place: int) -> int:
    """Place after the next `end`, or the end of the text."""
    found = text.find(end, place)
    return len(text) if found == -1 else found + len(end)


def attributes(text: str, tag: Span) -> Iterator[Attribute]:
    """Attributes with a value of a start tag; of two of one name the first."""
    seen = set()
    for match in ATTRIBUTE.finditer(text, tag.start, tag.end):
        name = match["name"].lower()
        if name not in seen:
            seen.add(name)
            kind = match.lastgroup
            assert kind is not None
            yield Attribute(
                name, Span(*match.span(kind)), {"double": '"', "single": "'"}.get(kind, "")
            )


class Places:
    """Lines and columns, both from 1, of characters in a text."""

    def __init__(self, text: str) -> None:
        self._starts: Sequence[int] = [0, *(m.end() for m in re.finditer("\r\n?|\n", text))]

    def name(self, place: int) -> str:
        """Line and column of a character."""
        line = bisect.bisect_right(self._starts, place)
        return f"line {line}, column {place - self._starts[line - 1] + 1}"


def values(text: str, tag: Span) -> Mapping[str, str]:
    """Values of the attributes of a start tag, in lower case."""
    return {a.name: text[a.span.start : a.span.end].lower() for a in attributes(text, tag)}
