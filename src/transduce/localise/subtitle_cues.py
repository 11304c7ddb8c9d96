"""Cues of SRT and WebVTT files: times and rows of text; blocks without times are named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from transduce.localise.document import Span
from transduce.localise.record import Record

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


class Block(NamedTuple):
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


def _srt_blocks(lines: Sequence[str]) -> Iterator[Block]:
    """Blocks begin at their counter, if any, else at their times; a block without times
    has the counter that is due, after a blank line."""
    due: int | None = None
    after, begun = 0, False
    for i, line in enumerate(lines):
        are_times = TIMING.fullmatch(line) is not None
        counter = _counter(lines[i - 1]) if i > after else None
        if are_times or TIMES_LIKE.match(line):
            yield Block(i - (counter is not None), i if are_times else None)
            due = _following(due if counter is None else counter)
        elif counter is not None and counter == due and line.strip() and not lines[i - 2].strip():
            yield Block(i - 1, None)
            due = _following(due)
        elif not begun and line.strip() and (_counter(line) is None or _is_last(lines, i)):
            yield Block(i, None)
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


def _vtt_blocks(lines: Sequence[str]) -> Iterator[Block]:
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
            yield Block(i - named, i if are_times else None)
            first = None
        elif first is None and (i == 0 or not lines[i - 1]):
            first = i
    if first is not None:
        yield _without_times(lines, first)


def _without_times(lines: Sequence[str], first: int) -> Block:
    return Block(first, None, not lines[first].startswith(UNTRANSLATED))


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
