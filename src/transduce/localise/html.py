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
    Reading,
    Segment,
    Span,
    decode,
    spliced,
)
from transduce.localise.html_events import Places, attributes, tags_of, values
from transduce.localise.inline import (
    KEPT,
    check_tags,
    core,
    from_markup,
    one_line,
    to_file,
    to_markup,
    trimmed,
)
from transduce.localise.tags import BLOCKS, OPAQUE, Tag, partners

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
class Part:
    """A place of text in a page: a block with its tags, or an attribute in its quotes, "" for
    none."""

    span: Span
    references: Mapping[str, str]
    tags: tuple[tuple[str, Span], ...] = ()
    quote: str | None = None


def read_html(content: bytes, reading: Reading) -> Document:
    """Read a page in the encoding given, else as declared, else UTF-8."""
    decoded = decode(content, reading.encoding or _declared(content))
    places = Places(decoded.text)
    parts: dict[str, Part] = {}
    segments: list[Segment] = []
    languages: list[Span] = []
    for part, source in _parts(decoded.text, reading.check, languages):
        key = places.name(part.span.start)
        parts[key] = part
        tags = tuple(name for name, _ in part.tags)
        segments.append(Segment(key, source, (part.span,), tags, part.quote is None))

    def render(targets: Mapping[str, str]) -> Iterator[Edit]:
        return _edits(decoded, parts, targets)

    return Document(segments, decoded, render, language_spans=languages)


def _declared(content: bytes) -> str | None:
    label = CHARSET.search(content[:1024])
    return None if label is None else declared_encoding(label[1].decode("ascii", "replace"))


def _parts(text: str, check: Check, languages: list[Span]) -> Iterator[tuple[Part, str]]:
    """Blocks and attributes, with their sources, in order; places of the language go to
    `languages`."""
    tags: list[Tag] = []
    for tag in tags_of(text):
        check()
        tags.append(tag)
    pairs = partners(tags)
    block: list[Tag] = []
    following = 0
    for i, tag in enumerate(tags):
        check()
        if i < following:
            continue
        if tag.kind == "open" and _is_opaque(text, tag):
            following = _end_of_element(tags, pairs, i)
            inline = Tag("void", "", Span(tag.span.start, tags[following - 1].span.end))
        else:
            inline = tag
            if tag.name and tag.kind != "close":
                yield from _values(text, tag, languages)
        if tag.name in BLOCKS:
            yield from _block(text, block)
            block = []
        else:
            block.append(inline)
    yield from _block(text, block)


def _is_opaque(text: str, tag: Tag) -> bool:
    by_name = values(text, tag.span)
    marked = by_name.get("translate") == "no" or "notranslate" in by_name.get("class", "").split()
    return tag.name in OPAQUE or marked


def _end_of_element(tags: Sequence[Tag], pairs: Mapping[int, int], start: int) -> int:
    """Index of the part after an element; without an end tag, of the next tag of a block."""
    if start in pairs:
        return pairs[start] + 1
    return next((i for i in range(start + 1, len(tags)) if tags[i].name in BLOCKS), len(tags))


def _block(text: str, block: Sequence[Tag]) -> Iterator[tuple[Part, str]]:
    first, last = core(block, text)
    if first == last:
        return
    span = trimmed(text, Span(block[first].span.start, block[last - 1].span.end))
    references: dict[str, str] = {}
    tags: list[tuple[str, Span]] = []
    parts: list[str] = []
    for tag in block[first:last]:
        raw = text[max(tag.span.start, span.start) : min(tag.span.end, span.end)]
        parts.append(to_markup(raw, references) if tag.kind == "text" else one_line(raw))
        if tag.kind != "text":
            tags.append((parts[-1], tag.span))
    if source := one_line("".join(parts)):
        yield Part(span, references, tuple(tags)), source


def _values(text: str, tag: Tag, languages: list[Span]) -> Iterator[tuple[Part, str]]:
    names = ATTRIBUTES | ATTRIBUTES_OF.get(tag.name, frozenset())
    if tag.name in ("meta", "input"):
        by_name = values(text, tag.span)
        if tag.name == "input" and by_name.get("type") in BUTTONS:
            names |= {"value"}
        elif DESCRIPTIONS & {by_name.get("name"), by_name.get("property")}:
            names |= {"content"}
    for name, span, quote in attributes(text, tag.span):
        if name in names:
            references: dict[str, str] = {}
            source = one_line(from_markup(to_markup(text[slice(*span)], references)))
            if source:
                yield Part(span, references, quote=quote), source
        elif tag.name in ("html", "body") and name in ("lang", "xml:lang"):
            languages.append(span)


def _edits(
    decoded: DecodedText, parts: Mapping[str, Part], targets: Mapping[str, str]
) -> Iterator[Edit]:
    leaves: list[Edit] = []
    blocks: list[tuple[str, Part]] = []
    for key, target in targets.items():
        if control := CONTROLS.search(target):
            raise DataError(f"{key}: HTML cannot hold the character {control[0]!r}; remove it")
        part = parts[key]
        if part.quote is None:
            blocks.append((key, part))
        else:
            leaves.append(Edit(part.span, _value(part, part.quote, one_line(target), decoded)))
    leaves.sort()
    for key, part in blocks:
        yield Edit(part.span, _content(key, part, one_line(targets[key]), decoded, leaves))
    covered = sorted(part.span for _, part in blocks)
    for leaf in leaves:
        before = bisect.bisect_right(covered, leaf.span.start, key=lambda span: span.start)
        if before == 0 or covered[before - 1].end <= leaf.span.start:
            yield leaf


def _content(
    key: str, block: Part, target: str, decoded: DecodedText, leaves: Sequence[Edit]
) -> str:
    names = [name for name, _ in block.tags]
    check_tags(key, names, target)
    spans: dict[str, list[Span]] = {}
    for name, span in reversed(block.tags):
        spans.setdefault(name, []).append(span)
    return "".join(
        spliced(decoded.text, spans[part].pop(), leaves) if is_tag else decoded.encodable(part)
        for is_tag, part in to_file(target, names, block.references)
    )


def _value(part: Part, quote: str, target: str, decoded: DecodedText) -> str:
    references = {**part.references, **KEPT, '"': "&quot;", "'": "&#39;"}
    if quote:
        other = "'" if quote == '"' else '"'
        references[other] = part.references.get(other, other)
    text = decoded.encodable("".join(references.get(c, c) for c in target))
    return text if quote else f'"{text}"'
