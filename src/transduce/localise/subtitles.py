"""Subtitles, SRT and WebVTT: sentences over lines and cues are segments; times stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transduce.errors import DataError
from transduce.localise.document import Document, Edit, Segment, Span, decode
from transduce.localise.inline import (
    Token,
    check_tags,
    core,
    one_line,
    to_file,
    to_markup,
    trimmed,
)
from transduce.localise.wrapping import joined_lines, shared_out, wrapped
from transduce.text.scripts import is_unspaced

COLUMNS = 42
"""Maximum columns of a line."""
MOST_CUES = 3
LONGEST_GAP = 1000
"""Maximum cues of a segment, and maximum milliseconds between two of them."""

_TIME = r"(?:(\d+):)?(\d{1,2}):(\d{2})[,.](\d{1,3})"
TIMING = re.compile(rf"[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}(?:[ \t].*)?", re.DOTALL)
LINE = re.compile(r"[^\r\n]*(\r\n|\r|\n|\Z)")
TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*+)[^<>\r\n]*+>|<\d[\d:.]*>|\{\\[^{}\r\n]*\}")
SPEAKER = re.compile(r"[-‐–—](?:[ \t]+(?=\S)|(?=[^\W\d]|[^\w\s‐–—-]))")
"""A dash before the words of a speaker, not before a number."""
BLANKS = re.compile(r"[ \t]+")
END = re.compile(r"[.!?…。！？♪][\"\'”’»)\]」』]*$|[)\]]$")
COMMA = tuple(",，、;；:：-–—")


class Piece(NamedTuple):
    """Text of a cue, or of one speaker in it, without its frame, of which this is the beginning."""

    span: Span
    frame: str


@dataclass(frozen=True)
class Cue:
    """One subtitle.  number: from 1.  start, end: milliseconds.  pieces: several for speakers."""

    number: int
    start: int
    end: int
    pieces: tuple[Piece, ...]
    newline: str


def read_srt(data: bytes, encoding: str | None = None) -> Document:
    """Read SubRip subtitles."""
    return _read("srt", data, encoding)


def read_vtt(data: bytes, encoding: str | None = None) -> Document:
    """Read WebVTT subtitles; notes, styles, regions and settings are not translated."""
    return _read("vtt", data, encoding)


def _read(kind: str, data: bytes, encoding: str | None) -> Document:
    decoded = decode(data, encoding)
    text, markup = decoded.text, kind == "vtt"
    groups: dict[str, list[Cue]] = {}
    segments: list[Segment] = []
    references: dict[str, str] = {}
    for group in _groups(list(_cues(text, whole_blocks=not markup)), text):
        for number in range(len(group[0].pieces)):
            pieces = [cue.pieces[number] for cue in group]
            key = _key(group, number)
            raw = joined_lines([one_line(text[a:b]) for (a, b), _ in pieces])
            source = _marked_up(raw, references) if markup else raw
            flags = frozenset({"markup"} if markup else ())
            tags = tuple(match[0] for match in TAG.finditer(source))
            groups[key] = group
            segments.append(Segment(key, source, tuple(p.span for p in pieces), flags, tags))
    by_key = {segment.key: segment for segment in segments}

    def render(targets: Mapping[str, str]) -> Iterator[Edit]:
        for key, target in targets.items():
            yield from _edits(by_key[key], one_line(target), groups[key], references)

    return Document(kind, segments, decoded, render)


def _key(group: Sequence[Cue], number: int) -> str:
    first, last = group[0].number, group[-1].number
    name = f"cue {first}" if first == last else f"cues {first}-{last}"
    return f"{name}, speaker {number + 1}" if len(group[0].pieces) > 1 else name


def _marked_up(raw: str, references: dict[str, str]) -> str:
    parts: list[str] = []
    place = 0
    for tag in TAG.finditer(raw):
        parts += to_markup(raw[place : tag.start()], references), tag[0]
        place = tag.end()
    return one_line("".join([*parts, to_markup(raw[place:], references)]))


def _cues(text: str, whole_blocks: bool) -> Iterator[Cue]:
    """The cues that have text.

    whole_blocks: text continues after a blank line, up to the counter of the next cue.
    """
    lines = [match for match in LINE.finditer(text) if match[0]]
    contents = [line[0].rstrip("\r\n") for line in lines]
    timings = [i for i, line in enumerate(contents) if TIMING.fullmatch(line)]
    for number, (here, following) in enumerate(
        zip(timings, [*timings[1:], len(lines)], strict=False), start=1
    ):
        first, last = here + 1, following
        if following < len(lines) and whole_blocks and contents[last - 1].strip().isdigit():
            last -= last > first
        if not whole_blocks:
            blank = (i for i in range(first, last) if not contents[i].strip())
            last = next(blank, last)
        rows = [Span(*lines[i].span()) for i in range(first, last) if contents[i].strip()]
        if pieces := tuple(_pieces(text, rows)):
            match = TIMING.fullmatch(contents[here])
            assert match is not None
            start, end = (_milliseconds(match.groups()[i : i + 4]) for i in (0, 4))
            yield Cue(number, start, end, pieces, lines[here][1])


def _milliseconds(parts: Sequence[str | None]) -> int:
    hours, minutes, seconds, fraction = parts
    assert minutes and seconds and fraction
    whole = (int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 1000 + int(fraction.ljust(3, "0"))


def _pieces(text: str, rows: Sequence[Span]) -> Iterator[Piece]:
    """The text of a cue, in a piece for each speaker."""
    marks = [_speaker(text, row) for row in rows]
    several = sum(mark is not None for mark in marks) > 1 or (marks[:1] != [None])
    turns: list[Span] = []
    for row, mark in zip(rows, marks, strict=True):
        if several and mark is not None:
            turns.append(Span(mark, row.end))
        elif turns:
            turns[-1] = Span(turns[-1].start, row.end)
        else:
            turns.append(row)
    for turn in turns:
        tokens = list(_tokens(text, turn))
        first, last = core(tokens, text)
        if first < last:
            span = trimmed(text, Span(tokens[first].span.start, tokens[last - 1].span.end))
            yield Piece(span, text[turn.start : span.start].strip())


def _speaker(text: str, row: Span) -> int | None:
    """Place of the words after a speaker's dash; None without one."""
    place = row.start
    while tag := TAG.match(text, place) or BLANKS.match(text, place):
        place = tag.end()
    dash = SPEAKER.match(text, place)
    return dash.end() if dash else None


def _tokens(text: str, span: Span) -> Iterator[Token]:
    place = span.start
    for tag in TAG.finditer(text, span.start, span.end):
        if place < tag.start():
            yield Token(Span(place, tag.start()), "text")
        place = tag.end()
        if tag[2]:
            yield Token(Span(*tag.span()), "close" if tag[1] else "open", tag[2].lower())
        else:
            yield Token(Span(*tag.span()), "void")
    if place < span.end:
        yield Token(Span(place, span.end), "text")


def _groups(cues: Sequence[Cue], text: str) -> Iterator[list[Cue]]:
    """Cues that hold one sentence or more between them."""
    group: list[Cue] = []
    for cue in cues:
        if group and not (len(group) < MOST_CUES and _goes_on(group[-1], cue, text)):
            yield group
            group = []
        group.append(cue)
    if group:
        yield group


def _goes_on(cue: Cue, following: Cue, text: str) -> bool:
    """True if the sentence of a cue continues in the next."""
    if len(cue.pieces) > 1 or len(following.pieces) > 1:
        return False
    if not cue.start <= following.start <= cue.end + LONGEST_GAP:
        return False
    (a, b), (c, d) = cue.pieces[0].span, following.pieces[0].span
    before, after = TAG.sub("", text[a:b]).strip(), TAG.sub("", text[c:d]).strip()
    if not before or not after or END.search(before):
        return False
    if cue.pieces[0].frame != following.pieces[0].frame:  # another voice
        return False
    return before.endswith(COMMA) or not (is_unspaced(before[-1]) or is_unspaced(after[0]))


def _edits(
    segment: Segment, target: str, group: Sequence[Cue], references: Mapping[str, str]
) -> Iterator[Edit]:
    markup, tags = "markup" in segment.flags, segment.tags
    check_tags(segment.key, tags, target)
    if markup:
        target = "".join(part for _, part in to_file(target, tags, references))
    elif "-->" in target or len(TAG.findall(target)) != len(tags):
        raise DataError(f"{segment.key}: subtitles cannot hold the tags or the --> of {target!r}")
    if len(group[0].pieces) == 1 and SPEAKER.match(target):
        raise DataError(f"{segment.key}: the translation begins as words of another speaker do")
    parts = shared_out(target, [max(cue.end - cue.start, 1) for cue in group])
    opened: list[str] = []
    for cue, span, part in zip(group, segment.spans, parts, strict=True):
        before, opened = opened, _still_open(part, opened)
        if part:
            ends = [] if cue is group[-1] else [f"</{_name(tag)}>" for tag in reversed(opened)]
            part = "".join([*before, part, *ends])
        yield Edit(span, cue.newline.join(wrapped(part, COLUMNS)))


def _still_open(part: str, opened: Sequence[str]) -> list[str]:
    """Start tags without an end after a part, given those before it."""
    stack = list(opened)
    for tag in TAG.finditer(part):
        if tag[1]:
            names = [_name(one) for one in stack]
            if tag[2].lower() in names:
                del stack[len(names) - 1 - names[::-1].index(tag[2].lower())]
        elif tag[2]:
            stack.append(tag[0])
    return stack


def _name(tag: str) -> str:
    match = TAG.fullmatch(tag)
    assert match is not None
    return str(match[2]).lower()
