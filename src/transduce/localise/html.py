"""HTML: blocks are segments with their inline tags; code and marked elements are copied."""

import bisect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import (
    BLOCKS,
    OPAQUE,
    RAW,
    REST,
    RUBY,
    VOID,
    DecodedText,
    Document,
    Edit,
    Kind,
    Reading,
    Record,
    Segment,
    Span,
    Tag,
    partners,
    spliced,
)
from transduce.localise.inline import (
    KEPT,
    check_tags,
    core,
    from_markup,
    in_one_line,
    to_file,
    to_markup,
    trimmed,
)
from transduce.localise.languages import is_right_to_left
from transduce.localise.xml import DECLARED, DOCUMENT_TYPE
from transduce.text.encodings import declared_encoding

MARKUP = re.compile(
    r"<(?P<close>/?)(?P<name>[A-Za-z][^\s/>]*)|<(?P<comment>!--)|<(?:[!?]|/(?=.))", re.DOTALL
)
"""Beginning of a part that is not text."""
PROLOG = re.compile(rf"(?i)\ufeff?(?:\s*+<\?xml\b[^<>]*\?>)?+\s*+(?s:{DOCUMENT_TYPE})?+")
"""Beginning of a page as XML has it."""
REST_OF_TAG = re.compile(REST)
HTML_ATTRIBUTE = re.compile(
    r"""[\s/"'](?P<name>[^\s"'<>/=]+)\s*=\s*"""
    r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^\s"'=<>`]+))"""
)


class HtmlAttribute(NamedTuple):
    """An attribute of a start tag; the span includes no quotes."""

    name: str
    span: Span
    quote: str


def tags_of(text: str) -> Iterator[Tag]:
    """All parts of a page, in order and without gaps, in time proportional to its length.

    Comments, declarations and instructions are void tags without a name.  As browsers do (HTML
    Standard, 13.2.5), an unfinished tag or comment takes the rest of the page.  A byte order mark
    and a document type with declarations are as in XML.
    """
    prolog = PROLOG.match(text)
    start = prolog.end() if prolog and prolog[0].strip() else 0
    if start:
        yield Tag("void", "", Span(0, start))
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


def attributes(text: str, tag: Span) -> Iterator[HtmlAttribute]:
    """Attributes with a value of a start tag; of equal names the first."""
    names = set()
    for match in HTML_ATTRIBUTE.finditer(text, tag.start, tag.end):
        name = match["name"].lower()
        if name not in names:
            names.add(name)
            quote = {"double": '"', "single": "'"}.get(match.lastgroup or "", "")
            yield HtmlAttribute(name, Span(*match.span(match.lastindex or 0)), quote)


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


ATTRIBUTES = frozenset(("alt", "title", "placeholder", "aria-label", "aria-description"))
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
HTML_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]")


@dataclass(frozen=True)
class HtmlPart:
    """A place of text in a page: a block with its tags, or an attribute in its quotes, "" for
    none."""

    span: Span
    references: Mapping[str, str]
    tags: tuple[tuple[str, Span], ...] = ()
    quote: str | None = None


def read_html(content: bytes, reading: Reading) -> Document:
    """Read a page in the encoding given, else as declared, else UTF-8."""
    return html_document(reading.decode(content, _html_declared(content)), reading)


def html_document(decoded: DecodedText, reading: Reading) -> Document:
    """The document of the text of a page."""
    places = Places(decoded.text)
    parts: dict[str, HtmlPart] = {}
    segments: list[Segment] = []
    language: list[Edit] = []
    unread: list[Record] = []
    for part, source in _html_parts(decoded.text, reading, language, unread):
        key = places.name(part.span.start)
        parts[key] = part
        tags = tuple(name for name, _ in part.tags)
        segments.append(Segment(key, source, (part.span,), tags, part.quote is None))

    def render(targets: Mapping[str, str]) -> Iterator[Edit]:
        return _html_edits(decoded, parts, targets)

    return Document(segments, decoded, render, language=language, unread=unread)


def _html_declared(content: bytes) -> str | None:
    """Encoding of the declaration of XML, else of the first `meta` that names one, wherever
    browsers obey it."""
    if declared := DECLARED.match(content):
        return declared_encoding(declared[1].decode())
    text = content.decode("latin-1")
    for tag in tags_of(text) if "charset" in text.lower() else ():
        if tag.name != "meta":
            continue
        by_name = values(text, tag.span)
        named = f"charset={by_name['charset']}" if "charset" in by_name else by_name.get("content")
        is_type = "charset" in by_name or by_name.get("http-equiv") == "content-type"
        if is_type and (label := HTML_CHARSET.search(named or "")):
            return declared_encoding(label[1])
    return None


def _html_parts(
    text: str, reading: Reading, language: list[Edit], unread: list[Record]
) -> Iterator[tuple[HtmlPart, str]]:
    """Blocks and attributes, with their sources, in order; edits that name the target language go
    to `language`, texts of pictures to `unread`."""
    tags: list[Tag] = []
    for tag in tags_of(text):
        reading.check()
        tags.append(tag)
    pairs = partners(tags)
    block: list[Tag] = []
    following = 0
    for i, tag in enumerate(tags):
        reading.check()
        if i < following:
            continue
        if tag.kind == "open" and _is_opaque(text, tag):
            following = _end_of_element(tags, pairs, i)
            if tag.name == "svg" and not _is_marked(text, tag):
                unread += _texts_of_picture(text, tags[i:following])
            inline = Tag("void", "", Span(tag.span.start, tags[following - 1].span.end))
        else:
            inline = tag
            if tag.name and tag.kind != "close":
                yield from _values(text, tag)
                if tag.name in ("html", "body") and reading.language:
                    language += _of_language(text, tag, reading.language)
        if tag.name in BLOCKS:
            yield from _block(text, block)
            block = []
        else:
            block.append(inline)
    yield from _block(text, block)


def _is_opaque(text: str, tag: Tag) -> bool:
    return tag.name in OPAQUE or _is_marked(text, tag)


def _is_marked(text: str, tag: Tag) -> bool:
    """True for an element that its author keeps."""
    by_name = values(text, tag.span)
    return by_name.get("translate") == "no" or "notranslate" in by_name.get("class", "").split()


def _texts_of_picture(text: str, tags: Sequence[Tag]) -> Iterator[Record]:
    """A record for each text with letters in an SVG picture."""
    is_inside = False
    for tag in tags:
        if tag.name == "text":
            is_inside = tag.kind == "open"
        words = in_one_line(text[slice(*tag.span)]) if is_inside and tag.kind == "text" else ""
        if any(map(str.isalpha, words)):
            yield Record("svg", words, words, "unread", "it is a text of a picture")


def _end_of_element(tags: Sequence[Tag], pairs: Mapping[int, int], start: int) -> int:
    """Index of the part after an element; without an end tag, of the next tag of a block."""
    if start in pairs:
        return pairs[start] + 1
    ends = {*BLOCKS, *RUBY, "rb", "ruby"} if tags[start].name in RUBY else BLOCKS
    return next((i for i in range(start + 1, len(tags)) if tags[i].name in ends), len(tags))


def _block(text: str, block: Sequence[Tag]) -> Iterator[tuple[HtmlPart, str]]:
    first, last = core(block, text)
    if first == last:
        return
    span = trimmed(text, Span(block[first].span.start, block[last - 1].span.end))
    references: dict[str, str] = {}
    tags: list[tuple[str, Span]] = []
    parts: list[str] = []
    for tag in block[first:last]:
        raw = text[max(tag.span.start, span.start) : min(tag.span.end, span.end)]
        parts.append(to_markup(raw, references) if tag.kind == "text" else in_one_line(raw))
        if tag.kind != "text":
            tags.append((parts[-1], tag.span))
    if source := in_one_line("".join(parts)):
        yield HtmlPart(span, references, tuple(tags)), source


def _of_language(text: str, tag: Tag, language: str) -> Iterator[Edit]:
    """Edits of the language of a page and of its direction."""
    direction = "rtl" if is_right_to_left(language) else "ltr"
    named = {a.name: a for a in attributes(text, tag.span)}
    for name in named.keys() & {"lang", "xml:lang"}:
        yield Edit(named[name].span, language)
    if "dir" in named:
        yield Edit(named["dir"].span, direction)
    elif tag.name == "html" and direction == "rtl":
        end = tag.span.start + len("<html")
        yield Edit(Span(end, end), ' dir="rtl"')


def _values(text: str, tag: Tag) -> Iterator[tuple[HtmlPart, str]]:
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
            source = in_one_line(from_markup(to_markup(text[slice(*span)], references)))
            if source:
                yield HtmlPart(span, references, quote=quote), source


def _html_edits(
    decoded: DecodedText, parts: Mapping[str, HtmlPart], targets: Mapping[str, str]
) -> Iterator[Edit]:
    leaves: list[Edit] = []
    blocks: list[tuple[str, HtmlPart]] = []
    for key, target in targets.items():
        if control := CONTROLS.search(target):
            raise DataError(f"{key}: HTML cannot hold the character {control[0]!r}; remove it")
        part = parts[key]
        if part.quote is None:
            blocks.append((key, part))
        else:
            leaves.append(Edit(part.span, _value(part, part.quote, in_one_line(target), decoded)))
    leaves.sort()
    for key, part in blocks:
        yield Edit(part.span, _content(key, part, in_one_line(targets[key]), decoded, leaves))
    covered = sorted(part.span for _, part in blocks)
    for leaf in leaves:
        before = bisect.bisect_right(covered, leaf.span.start, key=lambda span: span.start)
        if before == 0 or covered[before - 1].end <= leaf.span.start:
            yield leaf


def _content(
    key: str, block: HtmlPart, target: str, decoded: DecodedText, leaves: Sequence[Edit]
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


def _value(part: HtmlPart, quote: str, target: str, decoded: DecodedText) -> str:
    references = {**part.references, **KEPT, '"': "&quot;", "'": "&#39;"}
    if quote:
        other = "'" if quote == '"' else '"'
        references[other] = part.references.get(other, other)
    text = decoded.encodable("".join(references.get(c, c) for c in target))
    return text if quote else f'"{text}"'
