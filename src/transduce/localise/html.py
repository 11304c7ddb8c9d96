"""HTML: blocks are segments with their inline tags; code and marked elements are kept."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from transduce.errors import DataError
from transduce.localise.charsets import declared_encoding
from transduce.localise.document import (
    Check,
    DecodedText,
    Document,
    Edit,
    Segment,
    Span,
    decode,
    spliced,
    unchecked,
)
from transduce.localise.html_events import Event, Places, attributes, events_of, values
from transduce.localise.inline import (
    Token,
    check_tags,
    core,
    from_markup,
    one_line,
    partners,
    to_file,
    to_markup,
    trimmed,
)
from transduce.localise.tags import BLOCKS, OPAQUE

ATTRIBUTES = frozenset(("alt", "title", "placeholder", "aria-label"))
"""Attributes that readers see."""
ATTRIBUTES_OF: Mapping[str, frozenset[str]] = {
    "option": frozenset(("label",)),
    "optgroup": frozenset(("label",)),
    "track": frozenset(("label",)),
}
"""Those of some elements alone."""
BUTTONS = frozenset(("submit", "button", "reset"))
"""Types of an input whose value is its text."""
DESCRIPTIONS = frozenset(
    (
        *("description", "og:title", "og:description", "og:site_name", "og:image:alt"),
        *("twitter:title", "twitter:description", "twitter:image:alt", "application-name"),
    )
)
"""Names of `meta` whose content readers see."""
CHARSET = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]")


@dataclass(frozen=True)
class Block:
    """Content of a block: the tags of the segment, and their places."""

    span: Span
    tags: tuple[tuple[str, Span], ...]
    references: Mapping[str, str]


@dataclass(frozen=True)
class Value:
    """Value of an attribute."""

    span: Span
    quote: str
    references: Mapping[str, str]


@dataclass(frozen=True)
class Language:
    """Place where the page names its language."""

    span: Span


def read_html(data: bytes, encoding: str | None = None, check: Check = unchecked) -> Document:
    """Read a page in the encoding given, else the declared one, else UTF-8."""
    decoded = decode(data, encoding or _declared(data))
    places = Places(decoded.text)
    parts: dict[str, Block | Value] = {}
    segments: list[Segment] = []
    languages: list[Span] = []
    for part, source in _parts(decoded.text, check):
        if isinstance(part, Language):
            languages.append(part.span)
            continue
        key = places.name(part.span.start)
        parts[key] = part
        if isinstance(part, Block):
            tags = tuple(name for name, _ in part.tags)
            segments.append(Segment(key, source, (part.span,), frozenset({"markup"}), tags))
        else:
            segments.append(Segment(key, source, (part.span,)))

    def render(targets: Mapping[str, str]) -> Iterator[Edit]:
        return _edits(decoded, parts, targets)

    return Document("html", segments, decoded, render, language_spans=languages)


def _declared(data: bytes) -> str | None:
    label = CHARSET.search(data[:1024])
    return None if label is None else declared_encoding(label[1].decode("ascii", "replace"))


def _parts(text: str, check: Check) -> Iterator[tuple[Block | Value | Language, str]]:
    """Blocks and attributes, with the source of their segments, in the order of the page."""
    tokens: list[Token] = []
    events: list[Event] = []
    for event in events_of(text):
        check()
        events.append(event)
    pairs = partners([_token(event) for event in events])
    following = 0
    for i, event in enumerate(events):
        check()
        if i < following:
            continue
        opaque = event.kind == "start" and not event.empty and _is_opaque(text, event)
        if opaque:
            following = _end_of_element(events, pairs, i)
        elif event.kind == "start":
            yield from _values(text, event)
        if event.name in BLOCKS:
            yield from _block(text, tokens)
            tokens = []
        elif opaque:
            tokens.append(Token(Span(event.span.start, events[following - 1].span.end), "void"))
        else:
            tokens.append(_token(event))
    yield from _block(text, tokens)


def _token(event: Event) -> Token:
    if event.kind == "text":
        return Token(event.span, "text")
    if event.kind == "end":
        return Token(event.span, "close", event.name)
    inline = event.kind == "start" and not event.empty
    return Token(event.span, "open" if inline else "void", event.name)


def _is_opaque(text: str, event: Event) -> bool:
    given = values(text, event.span)
    marked = given.get("translate") == "no" or "notranslate" in given.get("class", "").split()
    return event.name in OPAQUE or marked


def _end_of_element(events: Sequence[Event], pairs: Mapping[int, int], start: int) -> int:
    """Index of the event after an element; without an end tag, of the next tag of a block."""
    if start in pairs:
        return pairs[start] + 1
    blocks = (i for i in range(start + 1, len(events)) if events[i].name in BLOCKS)
    return next(blocks, len(events))


def _block(text: str, tokens: Sequence[Token]) -> Iterator[tuple[Block, str]]:
    first, last = core(tokens, text)
    if first == last:
        return
    span = trimmed(text, Span(tokens[first].span.start, tokens[last - 1].span.end))
    references: dict[str, str] = {}
    tags: list[tuple[str, Span]] = []
    parts: list[str] = []
    for token in tokens[first:last]:
        start, end = max(token.span.start, span.start), min(token.span.end, span.end)
        if token.kind == "text":
            parts.append(to_markup(text[start:end], references))
        else:
            tags.append((one_line(text[start:end]), token.span))
            parts.append(tags[-1][0])
    if source := one_line("".join(parts)):
        yield Block(span, tuple(tags), references), source


def _values(text: str, event: Event) -> Iterator[tuple[Value | Language, str]]:
    """The attributes of a start tag that readers see."""
    names = ATTRIBUTES | ATTRIBUTES_OF.get(event.name, frozenset())
    if event.name in ("meta", "input"):
        by_name = values(text, event.span)
        if event.name == "input" and by_name.get("type") in BUTTONS:
            names |= {"value"}
        elif DESCRIPTIONS & {by_name.get("name"), by_name.get("property")}:
            names |= {"content"}
    for name, span, quote in attributes(text, event.span):
        if name in names:
            references: dict[str, str] = {}
            source = one_line(from_markup(to_markup(text[span.start : span.end], references)))
            if source:
                yield Value(span, quote, references), source
        elif event.name in ("html", "body") and name in ("lang", "xml:lang"):
            yield Language(span), ""


def _edits(
    decoded: DecodedText, parts: Mapping[str, Block | Value], targets: Mapping[str, str]
) -> Iterator[Edit]:
    """Edits for targets; a block has its attributes' edits within."""
    leaves: list[Edit] = []
    for key, target in targets.items():
        if found := CONTROLS.search(target):
            raise DataError(f"{key}: HTML cannot hold the character {found[0]!r}; remove it")
        if isinstance(value := parts[key], Value):
            leaves.append(Edit(value.span, _value(value, one_line(target), decoded)))
    leaves.sort()
    covered: list[Span] = []
    for key, target in targets.items():
        if isinstance(block := parts[key], Block):
            covered.append(block.span)
            yield Edit(block.span, _content(key, block, one_line(target), decoded, leaves))
    covered.sort()
    for leaf in leaves:
        before = bisect.bisect_right(covered, leaf.span.start, key=lambda span: span.start)
        if before == 0 or covered[before - 1].end <= leaf.span.start:
            yield leaf


def _content(
    key: str, block: Block, target: str, decoded: DecodedText, leaves: Sequence[Edit]
) -> str:
    names = [name for name, _ in block.tags]
    check_tags(key, names, target)
    places: dict[str, list[Span]] = {}
    for name, span in block.tags:
        places.setdefault(name, []).append(span)
    written = []
    for is_tag, part in to_file(target, names, block.references):
        if is_tag:
            written.append(spliced(decoded.text, places[part].pop(0), leaves))
        else:
            written.append(_encodable(part, decoded))
    return "".join(written)


def _value(value: Value, target: str, decoded: DecodedText) -> str:
    parts = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
    if value.quote:
        del parts['"' if value.quote == "'" else "'"]
    text = "".join(parts.get(c) or value.references.get(c, c) for c in target)
    quote = "" if value.quote else '"'
    return quote + _encodable(text, decoded) + quote


def _encodable(text: str, decoded: DecodedText) -> str:
    """Text with references in place of the characters that the encoding does not have."""
    return text.encode(decoded.encoding, "xmlcharrefreplace").decode(decoded.encoding)
