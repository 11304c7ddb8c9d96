"""Texts with marks of a plain file: blocks whose marks are tags, also blocks inside of a tag."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import (
    Check,
    DecodedText,
    Document,
    Edit,
    Record,
    Segment,
    Span,
    Tag,
    spliced,
)
from transduce.localise.inline import (
    check_tags,
    core,
    escaped,
    from_markup,
    in_one_line,
    parts_of,
    trimmed,
)
from transduce.localise.units import check_control, shortened
from transduce.text.scripts import width

LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n|\Z)")
"""A line with its end."""
Parse = Callable[[str, Span], Iterable[Tag]]
"""Texts and marks of a span of a text, without gaps, also empty ones; marks of a line break are
named `br`."""


class MarkedBlock(NamedTuple):
    """A block: its place, its marks by the tags of its segment, its reader, and lines of signs that
    are as wide as its text."""

    span: Span
    marks: Mapping[str, Span]
    parse: Parse
    rules: Sequence[Span]


class MarkedTexts:
    """The blocks of a file.

    check: called at each block.  signs: characters that a backslash keeps as text; without any, a
    translation whose signs would be marks is refused.  starts: beginnings of lines that are no
    paragraph.
    """

    def __init__(
        self,
        decoded: DecodedText,
        check: Check,
        signs: str = "",
        starts: re.Pattern[str] = re.compile(r"(?!)"),
    ) -> None:
        self.starts = starts
        self.decoded = decoded
        self.check = check
        self.signs = signs
        self.segments: dict[str, Segment] = {}
        self.blocks: dict[str, MarkedBlock] = {}
        self._counts = Counter[str]()

    def add(self, key: str, span: Span, parse: Parse, rules: Sequence[Span] = ()) -> None:
        """Add the block of a span, without the marks around it, if it has a text.

        key: of its segment, with a number behind it where there is one of that name.  rules: lines
        of signs above and below a title, which are as wide as it.
        """
        self.check()
        text = self.decoded.text
        tags = [tag for tag in parse(text, span) if tag.span.start < tag.span.end]
        first, last = core(tags, text)
        if first == last:
            return
        inner = tags[first:last]
        span = trimmed(text, Span(inner[0].span.start, inner[-1].span.end))
        marks = {name: tag.span for tag, name in _named(text, inner) if tag.kind != "text"}
        named = (
            escaped(self._read(Span(max(tag.span.start, span.start), min(tag.span.end, span.end))))
            if tag.kind == "text"
            else name
            for tag, name in _named(text, inner)
        )
        source = in_one_line("".join(named))
        key = name = shortened(key)
        while key in self.blocks:
            self._counts[name] += 1
            key = f"{name}, {self._counts[name] + 1}"
        spans = tuple(sorted((span, *rules)))
        self.segments[key] = Segment(key, source, spans, tuple(marks), markup=True)
        self.blocks[key] = MarkedBlock(span, marks, parse, rules)

    def _read(self, span: Span) -> str:
        """A text without the backslashes before its signs."""
        raw = self.decoded.text[slice(*span)]
        return re.sub(r"\\(\S)", r"\1", raw) if self.signs else raw

    def document(self, unread: Sequence[Record] = (), is_keyed: bool = False) -> Document:
        """The document of all blocks."""
        segments = sorted(self.segments.values(), key=lambda segment: segment.spans)
        return Document(segments, self.decoded, self.edits, unread=unread, is_keyed=is_keyed)

    def edits(self, targets: Mapping[str, str]) -> Iterator[Edit]:
        """Edits of some blocks; those of a block inside of another's mark are in its edit."""
        inside: list[Edit] = []
        for key in sorted(targets, key=lambda key: self._order(self.blocks[key].span)):
            span, target = self.blocks[key].span, in_one_line(targets[key])
            if target == self.segments[key].source:
                continue
            check_control(key, target)
            check_tags(key, self.segments[key].tags, target)
            nested = []
            while inside and span.start <= inside[-1].span.start:
                nested.append(inside.pop())
            edit = Edit(span, self._written(key, target, nested[::-1]))
            inside.append(edit)
            for rule in self.blocks[key].rules:
                signs = self.decoded.text[slice(*rule)]
                wide = signs[0] * max(len(signs), width(edit.text))
                inside.append(Edit(rule, wide))
        yield from inside

    def _order(self, span: Span) -> tuple[int, int]:
        return span.end, -span.start

    def _written(self, key: str, target: str, nested: Sequence[Edit]) -> str:
        segment, block = self.segments[key], self.blocks[key]
        breaks = iter([span for name, span in block.marks.items() if name.startswith("<br")])
        parts: list[tuple[bool, str]] = []
        is_behind_break = False
        for is_tag, part in parts_of(target, segment.tags):
            is_break = is_tag and part.startswith("<br")
            if is_tag:  # line breaks keep their order
                mark = next(breaks) if is_break else block.marks[part]
                if is_break and parts and not parts[-1][0]:
                    parts[-1] = False, parts[-1][1].rstrip()
                parts.append((True, spliced(self.decoded.text, mark, nested)))
            elif part:
                parts.append((False, from_markup(part.lstrip() if is_behind_break else part)))
            is_behind_break = is_break
        for signs in ("\\" * bool(self.signs), self.signs):
            raw = "".join(part if is_tag else _kept(part, signs) for is_tag, part in parts)
            if self.starts.match(raw) and not self.starts.match(
                self.decoded.text, block.span.start
            ):
                continue
            again = block.parse(raw, Span(0, len(raw)))
            if _joined((t.kind != "text", raw[slice(*t.span)]) for t in again) == _joined(
                (is_tag, part if is_tag else _kept(part, signs)) for is_tag, part in parts
            ):
                return raw
        raise DataError(f"{key}: a sign of the translation would be a mark of the format")


def _kept(text: str, signs: str) -> str:
    return "".join(f"\\{sign}" if sign in signs else sign for sign in text)


def _joined(parts: Iterator[tuple[bool, str]]) -> list[tuple[bool, str]]:
    """Texts and marks without white space, those beside each other as one."""
    joined: list[tuple[bool, str]] = []
    for is_tag, part in parts:
        bare = "".join(part.split())
        if joined and bare and joined[-1][0] == is_tag:
            joined[-1] = is_tag, joined[-1][1] + bare
        elif bare:
            joined.append((is_tag, bare))
    return joined


def _named(text: str, tags: Sequence[Tag]) -> Iterator[tuple[Tag, str]]:
    """Each part with its tag in the segment; pairs have the number of their beginning."""
    opened: dict[str, list[int]] = {}
    start = tags[0].span.start
    for tag in tags:
        number = tag.span.start - start
        if tag.kind == "open":
            opened.setdefault(tag.name, []).append(number)
            yield tag, f"<{tag.name}{number}>"
        elif tag.kind == "close":
            pairs = opened.get(tag.name)
            yield tag, f"</{tag.name}{pairs.pop() if pairs else number}>"
        else:
            raw = html.escape(in_one_line(text[slice(*tag.span)]))
            yield tag, f'<{tag.name or "x"}{number} of="{raw}"/>'
