"""Markdown: CommonMark with tables, front matter and admonitions; blocks are segments with tags.

markdown-it-py names the lines of a block and its markup in order; both are looked up again in the
file, and what is not there is left and named.  A translation is written only if it is read again
as the same text with the same markup.
"""

import dataclasses
import html
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from transduce.errors import DataError, extra_module, naming
from transduce.localise.document import (
    Document,
    Edit,
    Kind,
    Reading,
    Record,
    Segment,
    Span,
    Tag,
    parsed,
)
from transduce.localise.html import Places, read_html
from transduce.localise.inline import (
    check_tags,
    core,
    escaped,
    from_markup,
    in_one_line,
    parts_of,
    to_markup,
)
from transduce.localise.units import Unit, document_of
from transduce.localise.yaml_format import read_yaml

TITLES = (
    (
        r"^([ \t>]*)(?:!!!|\?\?\?\+?|===[+!]?)(?: [\w -]*?)?(?: \"(.*)\")?[ \t]*$",
        r"\1-   ###### \2",
    ),
    (r"^([ \t]*(?:>[ \t]?)+)\[!\w+\][-+]?(.*)$", r"\1###### \2"),
    (r"^([ \t>]*):{3,}[ \t]*(?:\{[^}]*\}|[\w-]+)?(.*)$", r"\1###### \2"),
)
"""Lines with titles of admonitions and tabs (MkDocs), of alerts and of containers: they are read as
headings, the first in a list whose items are as far indented as the content."""
MARGIN = " \t>"
FENCE = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")
FORMULAS = {"$$": "$$", "\\[": "\\]"}
"""Ends of formulas by their beginnings."""
BLOCK_CODE = re.compile(
    r"import\b(?:[^;'\"]*?\bfrom)?\s*['\"][^'\"\n]+['\"];?\s*"
    r"|export\s+(?:(?:default|const|let|var|function|class|async)\b|[{*])(?=[^\n]*[(){}\[=;*]).*",
    re.DOTALL,
)
"""A block of imports or exports (MDX)."""
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\}"
COMPONENT = re.compile(rf"{_BRACES}|</?(?:[A-Z](?:[^<>{{}}]|{_BRACES})*|[^<>{{}}]*{_BRACES}.*)?>")
"""An expression of MDX, or the tag of a component, or one with an expression."""
LONGEST_COMPONENT = 20
"""Lines of a tag of a component."""
DEFINITION = re.compile(r"^([ \t>]*):([ \t]+\S)")
TERM = re.compile(r"^([ \t>]*)(?![#>|<:*+-]|[0-9]+[.)] |={3}|`{3}|~{3})(\S)")


def parsed_lines(lines: Sequence[str], is_mdx: bool = False) -> list[str]:
    """The lines of a file as CommonMark reads their texts: titles as headings, definitions as items
    of a list and their terms as headings; formulas and imports as blank lines, in MDX expressions
    and tags of components, too."""
    parsed: list[str] = []
    fence = ""
    following = 0
    ends = {begin: _places(lines, end) for begin, end in FORMULAS.items()}
    for i, line in enumerate(lines):
        bare = line.strip(MARGIN)
        if i < following:
            parsed.append(line[: len(line) - len(line.lstrip(MARGIN))])
            continue
        mark = FENCE.match(bare)
        if fence or mark:
            is_end = bool(fence) and bare.startswith(fence) and not bare.strip(fence[0])
            fence = "" if is_end else fence or (mark[0] if mark else "")
            parsed.append(line)
            continue
        following = _end_of_formula(i, bare, ends) or _end_of_code(lines, i)
        following = following or (_end_of_component(lines, i) if is_mdx else 0)
        if following > i:
            parsed.append(line[: len(line) - len(line.lstrip(MARGIN))])
        elif DEFINITION.match(line) and _is_defined(parsed):
            parsed.append(DEFINITION.sub(r"\1-\2", line))
        else:
            for pattern, heading in TITLES:
                line = re.sub(pattern, heading, line)
            parsed.append(line)
    return parsed


def _places(lines: Sequence[str], end: str) -> list[int]:
    """For each line, the number of the next that ends a formula; -1 without one."""
    places, following = [], -1
    for i in range(len(lines) - 1, -1, -1):
        places.append(following)
        if lines[i].rstrip().endswith(end):
            following = i
    return places[::-1]


def _end_of_formula(i: int, bare: str, ends: dict[str, list[int]]) -> int:
    """Number of the line after a formula that begins in a line; 0 without one."""
    begin = next((sign for sign in FORMULAS if bare.startswith(sign)), None)
    if begin is None:
        return 0
    rest = bare[len(begin) :]
    if rest.rstrip().endswith(FORMULAS[begin]):
        return i + 1 if re.search(r"[\\^_=]", rest[:-2]) else 0
    is_open = FORMULAS[begin] not in rest and (begin == "$$" or not rest.strip())
    return ends[begin][i] + 1 if is_open else 0


def _end_of_code(lines: Sequence[str], i: int) -> int:
    """Number of the line after a block of imports or exports that begins in a line, else 0."""
    if not lines[i].startswith(("import ", "export ")) or (i and lines[i - 1].strip()):
        return 0
    end = next((j for j in range(i, len(lines)) if not lines[j].strip()), len(lines))
    statements = "\n".join(lines[i:end])
    parts = re.split(r"\n(?=import\b|export\b)", statements)
    return end if all(BLOCK_CODE.fullmatch(part) for part in parts) else 0


def _end_of_component(lines: Sequence[str], i: int) -> int:
    """Number of the line after an expression or the tag of a component of MDX, else 0."""
    if lines[i].lstrip(MARGIN)[:1] not in ("{", "<"):
        return 0
    for end in range(i + 1, min(i + LONGEST_COMPONENT, len(lines)) + 1):
        if not lines[end - 1].strip():
            break
        if COMPONENT.fullmatch("\n".join(lines[i:end]).lstrip(MARGIN).rstrip()):
            return end
    return 0


def _is_defined(parsed: list[str]) -> bool:
    """True if the lines before a definition are its terms, which become headings, or another."""
    last = len(parsed) - 1
    last -= last >= 0 and not parsed[last].strip()
    if last < 0 or not parsed[last].strip():
        return False
    first = last + 1
    while first > 0 and parsed[first - 1].strip(MARGIN):
        if re.match(r"[ \t>]*-[ \t]", parsed[first - 1]):
            return True
        if TERM.match(parsed[first - 1]) is None:
            return False
        first -= 1
    terms = parsed[first : last + 1]
    parsed[first : last + 1] = [TERM.sub(r"\1###### \2", line, count=1) for line in terms]
    return True


MARKDOWN_LINE = re.compile(r"([^\r\n]*)(\r\n?|\n|\Z)")
FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?\n)(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
FRONT_KEYS = ("title", "description", "summary", "subtitle", "sidebar_label")
MARKDOWN_CODES = re.compile(
    r"\[\^[^\]\s]+\]:?|\{[#.:][^{}\n]*\}|\$\$[^$\n]+\$\$|\$(?!\s)[^$\n]+(?<!\s)\$(?!\d)|\Z"
)
"""Footnotes, attributes and formulas in a text, and its end."""
MDX_CODES = re.compile(rf"{_BRACES}|{MARKDOWN_CODES.pattern}")
"""The same in MDX, and expressions."""
HARD_BREAK = re.compile(r"(?: {2,}|\\)\n *")
PATTERNS: Mapping[str, re.Pattern[str]] = {
    "softbreak": re.compile(r" *\n *"),
    "hardbreak": HARD_BREAK,
    "code_inline": re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL),
    "link_close": re.compile(
        r"\]\(\s*(?:<[^<>\n]*>|(?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*)"
        r"(?:\s+(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\)))?\s*\)"
        r"|\]\[[^\[\]]*\]|\]",
        re.DOTALL,
    ),
}
"""Characters of a file that tokens without them are made of."""
ENDS = {"<rt": "</rt>", "<rp": "</rp>", "\\(": "\\)"}
"""Ends of parts of a text that are kept as a whole, by the characters they begin with."""
MARKDOWN_SIGNS = re.compile(r"[\\`*_\[\]<>&~|$#]|(?<=^\d)[.)]|(?<=^\d\d)[.)]|^[-+=:!?]")


Context = tuple[str, str, int]
"""Text around a block with which it is read as in its file, and the number of tokens then."""
PARAGRAPH: Context = ("", "", 3)
CELL: Context = ("| ", " |\n|-|", 9)
CONTEXTS: Mapping[str, Context] = {"heading_open": ("# ", "", 3), "th_open": CELL, "td_open": CELL}


class MarkdownPiece(NamedTuple):
    """Part of a block: a tag or a text in markup form, and as the file has it."""

    tag: Tag
    text: str
    raw: str


def read_markdown(content: bytes, reading: Reading) -> Document:
    """Read the blocks of a file; code, addresses and comments stay."""
    decoded = reading.decode(content)
    text = decoded.text
    is_mdx = reading.name.lower().endswith(".mdx")
    codes = MDX_CODES if is_mdx else MARKDOWN_CODES
    reader = _Reader(extra_module("markdown_it", "Markdown", "serve"), codes)
    places = Places(text)
    rows = [Span(*match.span(1)) for match in MARKDOWN_LINE.finditer(text)]
    units: list[Unit] = []
    unread: list[Record] = []
    front = FRONT_MATTER.match(text)
    if front:
        yaml = front[1].encode()
        units += _inside(lambda: read_yaml(yaml, reading), front.start(1), places, FRONT_KEYS)
    end_of_front = front.end() if front else 0
    lines = [text[slice(*row)] if row.start >= end_of_front else "" for row in rows]
    masked = parsed_lines(lines, is_mdx)
    tokens = reader.markdown.parse("\n".join(masked), reader.environment)
    cursor = 0
    for before, token in zip(["", *tokens], tokens, strict=False):
        reading.check()
        if token.type == "html_block":
            start, end = rows[token.map[0]].start, rows[token.map[1] - 1].end
            page = text[start:end].encode()
            units += _inside(lambda: read_html(page, reading), start, places)  # noqa: B023
        if token.type != "inline" or not token.content.strip():
            continue
        key = places.name(rows[token.map[0]].start)
        try:
            spans = list(_located(text, before, token, rows[slice(*token.map)], cursor))
            key, cursor = places.name(spans[0].start), spans[-1].end
            margin = Span(rows[token.map[0] + 1].start, spans[1].start) if spans[1:] else Span(0, 0)
            prefix = decoded.newline + text[slice(*margin)]
            inner = [text[slice(*span)] for span in spans]
            context = CONTEXTS.get(before.type, PARAGRAPH)
            block = _Block(reader, key, spans, inner, prefix, context)
            units += [Unit([block.segment], block.edits)] if block.segment.source else []
        except DataError as error:
            unread.append(Record(key, token.content, token.content, "unread", str(error)))
    return document_of(decoded, units, unread=unread, is_keyed=False)


def _inside(
    read: Callable[[], Document], start: int, places: Places, keys: Sequence[str] = ()
) -> Iterator[Unit]:
    """A unit of the part of the file from `start` on, if another format reads it."""
    try:
        document = read()
    except DataError:
        return
    location = places.name(start)
    names = {f"{location}: {segment.key}": segment for segment in document.segments}
    segments = [
        dataclasses.replace(
            segment,
            key=name,
            spans=tuple(Span(a + start, b + start) for a, b in segment.spans),
        )
        for name, segment in names.items()
        if not keys or segment.key in keys
    ]

    def write(targets: Mapping[str, str]) -> Iterator[Edit]:
        inner = {names[name].key: target for name, target in targets.items()}
        with naming(location):
            edits = list(document.render(inner))
        for span, text in edits:
            yield Edit(Span(span.start + start, span.end + start), text)

    if segments:
        yield Unit(segments, write)


def _located(
    text: str, before: Any, token: Any, rows: Sequence[Span], cursor: int
) -> Iterator[Span]:
    """Places of the lines of a block in its rows: at their ends, or behind the mark of a heading or
    the cell before.  Raises DataError if one is not there."""
    for content, row in zip(token.content.split("\n"), rows, strict=False):
        line = text[slice(*row)]
        if before.type == "paragraph_open" or before.markup in ("=", "-"):
            start = len(line.rstrip()) - len(content.rstrip())
        else:
            start = line.find(before.markup, max(cursor - row.start, 0))
            start = max(start, cursor - row.start, 0)
            raw = content if content in line[start:] else content.replace("|", "\\|")
            start, content = line.find(raw, start), raw
        if start < 0 or not line.startswith(content.rstrip(), start):
            raise DataError("its lines are not found again")
        yield Span(row.start + start, row.start + start + len(content))


class _Reader:
    """A parser, with the links that it has found in a file, and entities of characters."""

    def __init__(self, library: Any, codes: re.Pattern[str]) -> None:
        self.codes = codes
        self.markdown = library.MarkdownIt("commonmark").enable(["table", "strikethrough"])
        self.markdown.core.ruler.disable("inline")
        self.environment: dict[str, Any] = {}
        self.references: dict[str, str] = {}

    def pieces(self, raw: str) -> list[MarkdownPiece]:
        """Parts of a block, without gaps.  Raises DataError if they are not found again."""
        tokens: list[Any] = []
        self.markdown.inline.parse(raw, self.markdown, self.environment, tokens)
        pieces: list[MarkdownPiece] = []
        opened: list[str] = []
        start = 0
        for token in _flat(tokens):
            pattern = PATTERNS.get(token.type)
            match = pattern.match(raw, start) if pattern else None
            part = match[0] if match else str(token.markup or token.content)
            if not raw.startswith(part, start):
                raise DataError("its markup is not found again")
            pieces += self._of(token, part, start, opened)
            start += len(part)
        if start != len(raw):
            raise DataError("its markup is not found again")
        return list(_markdown_joined(pieces))

    def _of(self, token: Any, part: str, start: int, opened: list[str]) -> Iterator[MarkdownPiece]:
        span = Span(start, start + len(part))
        if token.type.endswith("_open"):
            opened.append(f"{token.tag}{start}")
            yield _markdown_tag("open", opened[-1], span, part)
        elif token.type.endswith("_close"):
            yield _markdown_tag("close", opened.pop(), span, part)
        elif token.type == "html_inline":
            yield MarkdownPiece(parsed(part)._replace(span=span), in_one_line(part), part)
        elif token.type in ("code_inline", "hardbreak"):
            yield _markdown_tag("void", f"{token.tag}{start}", span, part)
        elif token.type == "text_special":
            is_entity = token.info == "entity"
            text = to_markup(part, self.references) if is_entity else escaped(token.content)
            yield MarkdownPiece(Tag("text", "", span), text, part)
        else:
            copied = 0
            for match in self.codes.finditer(part):
                literal = part[copied : match.start()]
                span = Span(start + copied, start + match.start())
                if self.codes is MDX_CODES and "{" in literal:
                    raise DataError("its expression is not read")
                if literal:
                    yield MarkdownPiece(Tag("text", "", span), escaped(literal), literal)
                copied = match.end()
                if match[0]:
                    span = Span(span.end, start + copied)
                    yield _markdown_tag("void", f"code{span.start}", span, match[0])


def _markdown_joined(pieces: Sequence[MarkdownPiece]) -> Iterator[MarkdownPiece]:
    """Pieces of a block; readings of `ruby` and formulas in `\\(`, `\\)` are one piece each."""
    following = 0
    for i, piece in enumerate(pieces):
        if i < following:
            continue
        end = ENDS.get(piece.raw[:3].rstrip(">"), "")
        last = next((j for j in range(i, len(pieces)) if pieces[j].raw == end), i) if end else i
        raw = "".join(part.raw for part in pieces[i : last + 1])
        if last > i and (raw.startswith("<") or re.search(r"[\\^_=]", raw[2:-2])):
            span = Span(piece.tag.span.start, pieces[last].tag.span.end)
            yield _markdown_tag("void", f"code{span.start}", span, raw)
            following = last + 1
        else:
            yield piece


def _flat(tokens: Sequence[Any]) -> Iterator[Any]:
    """Tokens with their characters where these are known, images as pairs around their texts."""
    for token in tokens:
        if token.type == "image":
            yield token.copy(type="image_open", markup="![")
            yield from _flat(token.children or ())
            yield token.copy(type="link_close", markup="]")
        elif token.type == "link_open":
            yield token.copy(markup="<" if token.markup == "autolink" else "[")
        elif token.markup == "autolink":
            yield token.copy(type="autolink_close", markup=">")
        else:
            yield token


def _markdown_tag(kind: Kind, name: str, span: Span, raw: str) -> MarkdownPiece:
    whole = f'<{name} of="{html.escape(in_one_line(raw))}"/>'
    text = {"open": f"<{name}>", "close": f"</{name}>"}.get(kind, whole)
    return MarkdownPiece(Tag(kind, name, span), text, raw)


class _Block:
    """A block: its segment, and how a target is written."""

    def __init__(
        self,
        reader: _Reader,
        key: str,
        spans: Sequence[Span],
        lines: Sequence[str],
        prefix: str,
        context: Context,
    ) -> None:
        self.reader = reader
        self.prefix = prefix
        self.context = context
        raw = "\n".join(lines)
        all_pieces = reader.pieces(raw)
        first, last = core([piece.tag for piece in all_pieces], raw)
        pieces = all_pieces[first:last]
        source = "".join(piece.text for piece in pieces)
        start, end = (pieces[0].tag.span.start, pieces[-1].tag.span.end) if source else (0, 1)
        start, end = end - len(raw[start:end].lstrip()), start + len(raw[start:end].rstrip())
        places = [i for span in spans for i in range(span.start, span.end + 1)]
        self.span = Span(places[start], places[end - 1] + 1)
        self.files = {p.text: p.raw for p in pieces if p.tag.kind != "text"}
        tags = tuple(piece.text for piece in pieces if piece.tag.kind != "text")
        self.segment = Segment(key, in_one_line(source), (self.span,), tags, True)
        self.width = max(map(len, lines)) if len(lines) > 1 else 0

    def edits(self, targets: Mapping[str, str]) -> Iterator[Edit]:
        """Edit of a target: in lines as its source, or in one, or with backslashes at all signs."""
        (target,) = map(in_one_line, targets.values())
        if target == self.segment.source:
            return
        check_tags(self.segment.key, self.segment.tags, target)
        for width, is_literal in ((self.width, True), (0, True), (0, False)):
            raw = self._raw(target, is_literal)
            if width:
                lines = (self._wrapped(line) for line in raw.split("\n"))
                raw = "\n".join(lines)
            if self._is_read(raw, target):
                yield Edit(self.span, raw.replace("\n", self.prefix))
                return
        raise DataError(f"{self.segment.key}: Markdown would not read the translation as it is")

    def _raw(self, target: str, is_literal: bool) -> str:
        parts = []
        for is_tag, part in parts_of(target, self.segment.tags):
            if is_tag:
                raw = self.files[part]
                is_break = HARD_BREAK.fullmatch(raw)
                parts.append(raw.rstrip(" ") if is_break else re.sub(r"\s*\n\s*", " ", raw))
                continue
            part = from_markup(part)
            if not is_literal:
                part = MARKDOWN_SIGNS.sub(r"\\\g<0>", part)
            elif self.context is CELL:
                part = part.replace("|", "\\|")
            parts.append("".join(self.reader.references.get(c, c) for c in part))
        return re.sub(r"(?<=\n) +", "", "".join(parts))

    def _wrapped(self, line: str) -> str:
        end = line[len(line.rstrip(" \\")) :]
        rows = textwrap.wrap(line, self.width, break_long_words=False, break_on_hyphens=False)
        return "\n".join(rows).removesuffix(end.strip()) + end

    def _is_read(self, raw: str, target: str) -> bool:
        """True if a text is read as one block with the text and the markup of a target."""
        before, after, n_tokens = self.context
        tokens = self.reader.markdown.parse(before + raw + after, self.reader.environment)
        contents = [token.content for token in tokens if token.type == "inline"]
        content = raw.replace("\\|", "|") if after else raw
        if len(tokens) != n_tokens or contents != [content]:
            return False
        try:
            pieces = self.reader.pieces(raw)
        except DataError:
            return False
        again = (from_markup(p.text) if p.tag.kind == "text" else f"\0{p.raw}\0" for p in pieces)
        parts = parts_of(target, self.segment.tags)
        same = (
            f"\0{self.files[part]}\0" if is_tag else from_markup(part) for is_tag, part in parts
        )
        return in_one_line("".join(again)) == in_one_line("".join(same))
