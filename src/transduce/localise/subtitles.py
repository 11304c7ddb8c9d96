"""Subtitles, SRT and WebVTT: sentences over lines and cues are segments."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from transduce.errors import DataError
from transduce.localise.document import Document, Edit, Reading, Record, Segment, Span, Tag, parsed
from transduce.localise.inline import check_tags, core, in_one_line, to_file, to_markup, trimmed
from transduce.localise.languages import code_page, of_other_languages
from transduce.localise.units import document_of
from transduce.text.scripts import (
    COLUMNS,
    cut_at,
    is_unspaced,
    joined_lines,
    line_places,
    width,
    wrapped,
)

_TIME = (
    r"-?(?:(?:(\d{1,6}):)?(\d{1,2}):(\d{1,2})[,.](\d{1,3})"
    r"|(\d{1,6}):(\d{1,2}):(\d{1,2}):(\d{1,3})"
    r"|(\d{1,6}):(\d{1,2}):(\d{2})(\d{3}))"
)
TIMING = re.compile(
    rf"[ \t]*{_TIME}[ \t]*(?:[-–—]+[ \t]?>|→)[ \t]*{_TIME}(?:[ \t].*)?", re.DOTALL | re.ASCII
)
"""Line of times, with usual deviations: other arrows, one digit, `:` or nothing before the
milliseconds, a minus."""
TIMES_LIKE = re.compile(r"[ \t]*[-+]?\d+:\d.*?(?:[-–—=][ \t]?>|→|\d:\d+:\d)", re.ASCII)
"""Beginning of a line that was meant as times."""
LINE = re.compile(r"[^\r\n]*(\r\n|\r|\n|\Z)")
UNTRANSLATED = ("WEBVTT", "NOTE", "STYLE", "REGION")
"""Beginnings of blocks of WebVTT without subtitles."""
VTT_LANGUAGE = re.compile(r"WEBVTT[^\r\n]*\r?\n(?:[^\r\n]+\r?\n)*?Language:[ \t]*([^\s]+)")
"""Head of WebVTT with a language, as YouTube writes it."""
EXAMPLE = "00:00:01,000 --> 00:00:02,000"


@dataclass(frozen=True)
class Cue:
    """A subtitle: number from 1, milliseconds, rows that are not blank, line end after its
    times."""

    number: int
    start: int
    end: int
    rows: tuple[Span, ...]
    newline: str


class CueBlock(NamedTuple):
    """Lines of a file from the number `first`, with a line of times or without (None)."""

    first: int
    times: int | None
    is_text: bool = True


def read_cues(text: str, is_vtt: bool) -> tuple[list[Cue], list[Record]]:
    """The cues of a file that have text, and the blocks that are none; in SRT, text continues after
    a blank line, up to the next cue."""
    matches = [match for match in LINE.finditer(text) if match[0]]
    lines = [match[0].rstrip("\r\n") for match in matches]
    blocks = list(_vtt_blocks(lines) if is_vtt else _srt_blocks(lines))
    ends = [*(block.first for block in blocks), len(lines)][1:]
    cues: list[Cue] = []
    unread: list[Record] = []
    number = 0
    for block, end in zip(blocks, ends, strict=True):
        if block.times is None:
            words = " ".join(line.strip() for line in lines[block.first : end] if line.strip())
            if block.is_text and words:
                reason = f"no line of times such as {EXAMPLE}; the lines stay as they are"
                unread.append(Record(f"line {block.first + 1}", words, words, "unread", reason))
            continue
        number += 1
        start, stop = _milliseconds(lines[block.times])
        numbers = range(block.times + 1, end)
        if is_vtt:
            end = next((i for i in numbers if not lines[i]), end)
            numbers = range(block.times + 1, end)
        rows = tuple(Span(*matches[i].span()) for i in numbers if lines[i].strip())
        if rows:
            cues.append(Cue(number, start, stop, rows, matches[block.times][1]))
    return cues, unread


def _srt_blocks(lines: Sequence[str]) -> Iterator[CueBlock]:
    """Blocks begin at their counter, if any, else at their times; a block without times
    has the counter that is due, after a blank line."""
    due: int | None = None
    after, begun = 0, False
    for i, line in enumerate(lines):
        are_times = TIMING.fullmatch(line) is not None
        counter = _counter(lines[i - 1]) if i > after else None
        if are_times or TIMES_LIKE.match(line):
            yield CueBlock(i - (counter is not None), i if are_times else None)
            due = _following(due if counter is None else counter)
        elif counter is not None and counter == due and line.strip() and not lines[i - 2].strip():
            yield CueBlock(i - 1, None)
            due = _following(due)
        elif not begun and line.strip() and (_counter(line) is None or _is_last(lines, i)):
            yield CueBlock(i, None)
        else:
            continue
        after, begun = i + 1, True


def _following(counter: int | None) -> int | None:
    return None if counter is None else counter + 1


def _is_last(lines: Sequence[str], i: int) -> bool:
    return i + 1 == len(lines) or not lines[i + 1].strip()


def _counter(line: str) -> int | None:
    digits = line.strip()
    return int(digits) if digits.isdecimal() and len(digits) < 10 else None


def _vtt_blocks(lines: Sequence[str]) -> Iterator[CueBlock]:
    """Blocks between empty lines, and from lines of times; the line before may be a name."""
    first: int | None = None
    for i, line in enumerate(lines):
        if not line:
            if first is not None:
                yield _without_times(lines, first)
            first = None
        elif (are_times := TIMING.fullmatch(line) is not None) or TIMES_LIKE.match(line):
            named = first is not None and first == i - 1
            if first is not None and not named:
                yield _without_times(lines, first)
            yield CueBlock(i - named, i if are_times else None)
            first = None
        elif first is None and (i == 0 or not lines[i - 1]):
            first = i
    if first is not None:
        yield _without_times(lines, first)


def _without_times(lines: Sequence[str], first: int) -> CueBlock:
    return CueBlock(first, None, not lines[first].startswith(UNTRANSLATED))


def _milliseconds(line: str) -> tuple[int, int]:
    match = TIMING.fullmatch(line)
    assert match is not None
    groups = match.groups()
    times = []
    for side in (groups[:12], groups[12:]):
        hours, minutes, seconds, fraction = next(
            side[i : i + 4] for i in (0, 4, 8) if side[i + 1] is not None
        )
        whole = (int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)
        times.append(whole * 1000 + int(fraction.ljust(3, "0")))
    return times[0], times[1]


MOST_CUES = 3
LONGEST_GAP = 1000
"""Maximum cues of a sentence, and maximum milliseconds between two of them."""
MOST_ROWS = 4
"""Maximum rows of a cue that the next cue repeats."""
LEAST_ROLLING = 1 / 3
"""Minimum share of such cues in rolling captions."""

TAG = re.compile(r"(<rt>[^<>\r\n]*+</rt>|</?[A-Za-z][^<>\r\n]*+>|<\d[\d:.]*>|\{\\[^{}\r\n]*\})")
SPEAKER = re.compile(r"[-‐–—](?:[ \t]+(?=\S)|(?=[^\W\d]|[^\w\s‐–—-]))")
"""A dash before the words of a speaker, not before a number."""
BLANKS = re.compile(r"[ \t]+")
SUBTITLE_BREAK = re.compile(r"\r\n|[\r\n]|\\N|<br ?/?>")
GAP = re.compile(rf"((?<!\s)[^\S\r\n]*+(?:(?:{SUBTITLE_BREAK.pattern})\s*+)+)")
"""Line breaks with the blanks beside them."""
END = re.compile(r"[.!?…。！？♪][\"\'”’»)\]」』]*$|[)\]]$")
ADDRESS = re.compile(r"www\.|[a-z]+://|\S+@\S+\.\w|[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}(?=[/\s]|$)")
"""Beginning of a text that is an address: it does not go on with the sentence before."""
COMMA = tuple(",，、;；")


class CuePiece(NamedTuple):
    """Text of a cue, or of a speaker in it, without the frame before it."""

    span: Span
    frame: str


@dataclass(frozen=True)
class Passage:
    """A sentence or more.

    parts: places of the text, for each cue.
    kind: of whole cues, a turn of a speaker, or a line that several cues show.
    """

    key: str
    parts: tuple[tuple[CuePiece, ...], ...]
    newline: str
    kind: Literal["cues", "turn", "line"] = "cues"


def read_subtitles(kind: Literal["srt", "vtt"], content: bytes, reading: Reading) -> Document:
    """Read subtitles; of WebVTT, notes, styles, regions and settings are not translated.

    kind: "srt" or "vtt".  content: bytes of the file.  reading: languages and encoding.
    """
    decoded = reading.decode(content, fallback=code_page(reading.source))
    text, is_markup = decoded.text, kind == "vtt"
    language = []
    if is_markup and (own := VTT_LANGUAGE.match(text)):
        if others := of_other_languages(reading, source=own[1]):
            return document_of(decoded, [], unread=others)
        language = [Edit(Span(*own.span(1)), reading.language)] if reading.language else []
    cues, unread = read_cues(text, is_markup)
    references: dict[str, str] = {}

    def shown(raw: str) -> str:
        return in_one_line(_marked_up(raw, references) if is_markup else raw)

    layouts: dict[str, _Layout] = {}
    segments: list[Segment] = []
    for passage in _passages(cues, text):
        reading.check()
        raws = [text[slice(*part[0].span)] for part in passage.parts]
        if passage.kind == "line":
            raws = [TAG.sub("", raw) for raw in raws]
        rows = [[shown(row) for row in _rows(raw)[0]] for raw in raws]
        parts = [joined_lines(lines) for lines in rows]
        if not (source := joined_lines(parts)):
            continue
        borders = tuple(line_places(parts, len)[1:-1])
        tags = tuple(match[0] for match in TAG.finditer(source))
        spans = tuple(sorted(piece.span for part in passage.parts for piece in part))
        segment = Segment(passage.key, source, spans, tags, is_markup, borders)
        segments.append(segment)
        layouts[passage.key] = _Layout(segment, passage, rows, text)

    def render(targets: Mapping[str, str]) -> Iterator[Edit]:
        for key, target in targets.items():
            yield from layouts[key].edits(target, references)

    return Document(segments, decoded, render, language=language, unread=unread)


def _marked_up(raw: str, references: dict[str, str]) -> str:
    parts = TAG.split(raw)
    return "".join(part if i % 2 else to_markup(part, references) for i, part in enumerate(parts))


def _rows(raw: str) -> tuple[list[str], list[str]]:
    """Rows of the text of a cue, and what stands between them: line breaks with their blanks."""
    parts = GAP.split(raw.strip())
    first = 0 if parts[0] else 2
    last = len(parts) if parts[-1] else -2
    return parts[first:last:2], parts[first + 1 : last : 2]


# --- Passages: turns of speakers, repeated lines, sentences over cues.


def _passages(cues: Sequence[Cue], text: str) -> Iterator[Passage]:
    for run, repeats in _subtitle_runs(cues, text):
        if repeats:
            yield from _rolling(run, repeats, text)
        else:
            yield from _sentences(run, text)


def _subtitle_runs(cues: Sequence[Cue], text: str) -> Iterator[tuple[list[Cue], list[int]]]:
    """Runs of rolling captions, cues that begin with the last rows of the cue before, with the
    numbers of these rows; cues between such runs come together, without numbers."""
    counts = [0, *(_n_repeated(a, b, text) for a, b in itertools.pairwise(cues)), 0]
    if sum(count > 0 for count in counts) < max(2, LEAST_ROLLING * len(cues)):
        counts = [0] * len(counts)
    rolls = [counts[i] > 0 or counts[i + 1] > 0 for i in range(len(cues))]
    start = 0
    for i in range(1, len(cues) + 1):
        if i == len(cues) or (counts[i] == 0 and (rolls[i - 1] or rolls[i])):
            yield list(cues[start:i]), counts[start:i] if rolls[start] else []
            start = i


def _n_repeated(cue: Cue, following: Cue, text: str) -> int:
    if not _is_near(cue, following):
        return 0
    ends = [_row_words(text, row) for row in cue.rows[-MOST_ROWS:]]
    begins = [_row_words(text, row) for row in following.rows[:MOST_ROWS]]
    most = min(len(ends), len(begins))
    return next((n for n in range(most, 0, -1) if ends[-n:] == begins[:n] and all(begins[:n])), 0)


def _is_near(cue: Cue, following: Cue) -> bool:
    return cue.start <= following.start <= cue.end + LONGEST_GAP


def _row_words(text: str, row: Span) -> str:
    """Words of a row; none if it has line breaks of its own."""
    return (
        ""
        if SUBTITLE_BREAK.search(text[slice(*row)].rstrip("\r\n"))
        else _subtitle_words(text, row)
    )


def _subtitle_words(text: str, span: Span) -> str:
    return " ".join(TAG.sub("", text[span.start : span.end]).split())


def _rolling(cues: Sequence[Cue], repeats: Sequence[int], text: str) -> Iterator[Passage]:
    """Each line of a run once, with all places that hold it."""
    lines: list[list[Span]] = []
    for cue, n_repeated in zip(cues, repeats, strict=True):
        rows = cue.rows
        for line, row in zip(lines[len(lines) - n_repeated :], rows[:n_repeated], strict=True):
            line.append(row)
        lines += [[row] for row in rows[n_repeated:]]
    name = _name(cues[0], cues[-1])
    for number, line in enumerate(lines, start=1):
        if copies := tuple(piece for row in line for piece in _turns(text, [row])):
            yield Passage(f"{name}, line {number}", (copies,), cues[0].newline, "line")


def _name(first: Cue, last: Cue) -> str:
    return f"cue {first.number}" if first is last else f"cues {first.number}-{last.number}"


def _sentences(cues: Sequence[Cue], text: str) -> Iterator[Passage]:
    """Turns of speakers, and cues that hold a sentence or more between them."""
    group: list[tuple[Cue, CuePiece]] = []

    def passage() -> Passage:
        parts = tuple((piece,) for _, piece in group)
        return Passage(_name(group[0][0], group[-1][0]), parts, group[0][0].newline)

    for cue in cues:
        pieces = tuple(_turns(text, cue.rows))
        goes_on = len(pieces) == 1 and 0 < len(group) < MOST_CUES
        if group and not (goes_on and _cue_goes_on(*group[-1], cue, pieces[0], text)):
            yield passage()
            group = []
        if len(pieces) == 1:
            group.append((cue, pieces[0]))
            continue
        for number, piece in enumerate(pieces, start=1):
            key = f"cue {cue.number}, speaker {number}"
            yield Passage(key, ((piece,),), cue.newline, "turn")
    if group:
        yield passage()


def _turns(text: str, rows: Sequence[Span]) -> Iterator[CuePiece]:
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
        tags = list(_tags(text, turn))
        first, last = core(tags, text)
        if first < last:
            span = trimmed(text, Span(tags[first].span.start, tags[last - 1].span.end))
            yield CuePiece(span, text[turn.start : span.start].strip())


def _speaker(text: str, row: Span) -> int | None:
    """Place of the words after a speaker's dash; None without a dash."""
    offset = row.start
    while tag := TAG.match(text, offset) or BLANKS.match(text, offset):
        offset = tag.end()
    dash = SPEAKER.match(text, offset)
    return dash.end() if dash else None


def _tags(text: str, span: Span) -> Iterator[Tag]:
    start = span.start
    for i, part in enumerate(TAG.split(text[slice(*span)])):
        if part:
            yield (parsed(part) if i % 2 else Tag("text"))._replace(
                span=Span(start, start + len(part))
            )
        start += len(part)


def _cue_goes_on(
    cue: Cue, piece: CuePiece, following: Cue, next_piece: CuePiece, text: str
) -> bool:
    """True if the sentence of a cue continues in the next, without a comma in a lower-case
    letter."""
    if not _is_near(cue, following):
        return False
    if piece.frame != next_piece.frame or _speaker(text, following.rows[0]):  # another voice
        return False
    before, after = _subtitle_words(text, piece.span), _subtitle_words(text, next_piece.span)
    if not any(map(str.isalpha, before)) or not after or END.search(before) or before == after:
        return False
    if before.endswith(COMMA):
        return after[0].isalpha()
    if ADDRESS.match(after):
        return False
    is_lower = after[0].isalpha() and not after[0].isupper() and not after[0].istitle()
    return is_lower and not (is_unspaced(before[-1]) or is_unspaced(after[0]))


# --- Rendering.


class _Layout(NamedTuple):
    """A segment in its file.  rows: lines of each part of its source."""

    segment: Segment
    passage: Passage
    rows: list[list[str]]
    text: str

    def edits(self, target: str, references: Mapping[str, str]) -> Iterator[Edit]:
        """Edits for a target, whose line breaks, if there are as many, are those between cues."""
        parts = [in_one_line(line) for line in target.splitlines()]
        if len(parts) != len(self.rows) or not all(parts):
            places = line_places([joined_lines(rows) for rows in self.rows])
            parts = cut_at(in_one_line(target), places)
        self._check(parts)
        opened: list[str] = []
        for i, (copies, rows) in enumerate(zip(self.passage.parts, self.rows, strict=True)):
            part, before = parts[i], opened
            opened = _still_open(part, opened)
            ends: list[str] = []
            if part:
                ends = [f"</{parsed(tag).name}>" for tag in reversed(opened) if i + 1 < len(parts)]
                part = "".join([*before, part, *ends])
            tags = (*self.segment.tags, *ends)
            for piece in copies:
                texts, between = self._laid_out(piece, part, rows)
                if self.segment.markup:
                    texts = ["".join(p for _, p in to_file(t, tags, references)) for t in texts]
                pairs = zip(texts, [*between, ""], strict=True)
                yield Edit(piece.span, "".join(itertools.chain(*pairs)))

    def _laid_out(
        self, piece: CuePiece, part: str, rows: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """A part of a target for a place of it, and the line breaks or tags between."""
        raw = self.text[slice(*piece.span)]
        if self.passage.kind == "line":
            return _spread(raw, part)
        lines, between = _lines(part, rows), _rows(raw)[1]
        fits = len(lines) == len(between) + 1
        return lines, between if fits else [self.passage.newline] * (len(lines) - 1)

    def _check(self, parts: Sequence[str]) -> None:
        key, tags, target = self.segment.key, self.segment.tags, joined_lines(parts)
        check_tags(key, tags, target)
        if not self.segment.markup and (
            ("-->" in target and "-->" not in self.segment.source)
            or len(TAG.findall(target)) != len(tags)
        ):
            raise DataError(f"{key}: subtitles cannot hold the tags or the --> of {target!r}")
        if self.passage.kind != "turn" and any(map(SPEAKER.match, parts)):
            raise DataError(f"{key}: the translation begins as words of another speaker do")
        if any(map(TIMES_LIKE.match, parts)):
            raise DataError(f"{key}: the translation begins as times of subtitles do")


def _lines(part: str, rows: Sequence[str]) -> list[str]:
    """Lines of a cue: cut as its rows were if these lines fit, else anew."""
    lines = cut_at(part, line_places(rows))
    widest = max(COLUMNS, *map(width, rows))
    return lines if all(0 < width(line) <= widest for line in lines) else wrapped(part, COLUMNS)


def _spread(raw: str, part: str) -> tuple[list[str], list[str]]:
    """A text cut by the shares of the words between the tags of a row, and these tags."""
    chunks, tags = TAG.split(raw)[::2], TAG.findall(raw)
    places, so_far = [], 0
    for chunk in chunks:
        if chunk.strip():
            places.append(so_far + width(chunk) - width(chunk.lstrip()))
        so_far += width(chunk)
    places = [*(offset - places[0] for offset in places), so_far - places[0]]
    parts = iter(cut_at(part, places))
    words = [next(parts) if chunk.strip() else "" for chunk in chunks]
    filled = [i for i, text in enumerate(words) if text]
    for i, following in itertools.pairwise(filled):
        gap = joined_lines([words[i][-1], words[following][0]])[1:-1]
        blank = next((n for n in range(i, following) if chunks[n][-1:].isspace()), None)
        if blank is None:
            words[following] = gap + words[following]
        else:
            words[blank] += gap
    return words, tags


def _still_open(part: str, opened: Sequence[str]) -> list[str]:
    """Start tags without an end after a part, given those before it."""
    stack = list(opened)
    for match in TAG.finditer(part):
        kind, name, _ = parsed(match[0])
        if kind == "open":
            stack.append(match[0])
        elif kind == "close" and name in (names := [parsed(start).name for start in stack]):
            del stack[len(names) - 1 - names[::-1].index(name)]
    return stack
