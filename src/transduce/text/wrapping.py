"""Lines of limited width, and shares of a text, cut where the reader expects it."""

from __future__ import annotations

import bisect
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

from transduce.text.scripts import is_unspaced

TAG = re.compile(r"<[^<>]*>")
ENDS = ("Pe", "Pf", "Po")
"""Categories of closing marks and of marks that end a clause."""
COLUMNS = 42
"""Maximum columns of a line of a subtitle."""
SKIPPED = (" ", *"-‐–—")
"""Characters that no unit begins with."""
CLAUSE = 0.25
"""Share of the width beside a cut that it may be off to fall at the end of a clause."""
EXACT = 0.5
"""Columns that an exact cut may be off."""


def visible(text: str) -> str:
    """A text without its tags."""
    return TAG.sub("", text)


def width(text: str) -> int:
    """Columns of a text: tags and combining characters have none, wide characters of East Asia
    two."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in ("W", "F"))
        for c in visible(text)
    )


def joined_lines(lines: Sequence[str]) -> str:
    """Lines joined into one, with a space between two, except in scripts without spaces."""
    text = ""
    for line in lines:
        text += _gap(text[-1:], line[:1]) + line
    return text


def _gap(before: str, after: str) -> str:
    between_words = before and after and not (is_unspaced(before) and is_unspaced(after))
    return " " if between_words else ""


def line_places(lines: Sequence[str], measure: Callable[[str], int] = width) -> list[int]:
    """Columns at which each line begins in `joined_lines` of them, then the width of that."""
    places, last, columns = [], "", 0
    for line in lines:
        columns += len(_gap(last, line[:1]))
        places.append(columns)
        columns += measure(line)
        last = line[-1:] or last
    return [*places, columns]


def units(text: str) -> Iterator[str]:
    """Unbreakable parts of a text without double spaces, each with the space after it: no tag
    `<...>` is cut, and none but the first begins with a dash, the mark of a speaker."""
    inside = {
        position for tag in TAG.finditer(text) for position in range(tag.start() + 1, tag.end())
    }
    start = 0
    for position in range(1, len(text)):
        before, after = text[position - 1], text[position]
        if position in inside or after in SKIPPED:
            continue
        blank = before == " "
        if blank:
            before = text[position - 2 : position - 1]
        unspaced = before != "" and is_unspaced(before) and is_unspaced(after)
        if blank != unspaced and not (unspaced and _clings(before, after)):
            yield text[start:position]
            start = position
    if text:
        yield text[start:]


def _clings(before: str, after: str) -> bool:
    """True between characters of a script without spaces where no line ends: around marks."""
    return unicodedata.category(after) in ENDS or unicodedata.category(before) in ("Ps", "Pi")


def wrapped(text: str, columns: int) -> list[str]:
    """A text in the fewest lines of at most `columns`, of like widths; longer units stay whole."""
    parts = [(part, width(part), width(part.rstrip(" "))) for part in units(text)]
    lines = _filled(parts, columns)
    for narrower in range(-(-width(text) // len(lines)), columns):
        balanced = _filled(parts, narrower)
        if len(balanced) == len(lines):
            return balanced
    return lines


def _filled(parts: Sequence[tuple[str, int, int]], columns: int) -> list[str]:
    lines: list[list[str]] = [[]]
    used = 0
    for part, full, bare in parts:
        if lines[-1] and used + bare > columns:
            lines.append([])
            used = 0
        lines[-1].append(part)
        used += full
    return ["".join(line).strip(" ") for line in lines]


def cut_at(text: str, places: Sequence[float]) -> list[str]:
    """A text cut like another whose parts begin at these columns, and whose width is the last.

    A place between two units that lies there exactly, in proportion, is cut; else near it the end
    of a clause is preferred.  A text of fewer units than parts leaves the last parts empty.
    """
    parts = list(units(text))
    ends = [0, *itertools.accumulate(map(width, parts))]
    scale = ends[-1] / (places[-1] or 1)
    ideals = [offset * scale for offset in places]
    cuts = [0]
    for i in range(1, len(places) - 1):
        first = min(cuts[-1] + 1, len(parts))
        last = max(first, len(parts) - (len(places) - 1 - i))
        room = CLAUSE * min(ideals[i] - ideals[i - 1], ideals[i + 1] - ideals[i])
        cuts.append(_cut(parts, ends, ideals[i], room, range(first, last + 1)))
    cuts.append(len(parts))
    return ["".join(parts[a:b]).strip(" ") for a, b in itertools.pairwise(cuts)]


def _cut(
    parts: Sequence[str], ends: Sequence[int], ideal: float, room: float, choice: range
) -> int:
    """Number of units before a cut near an ideal column."""

    def nearest(candidates: Iterable[int]) -> int:
        return min(candidates, key=lambda number: abs(ends[number] - ideal), default=choice[0])

    after = bisect.bisect_left(ends, ideal, choice[0], choice[-1])
    best = nearest(number for number in (after - 1, after) if number in choice)
    if abs(ends[best] - ideal) < EXACT:
        return best
    room += abs(ends[best] - ideal)
    low = bisect.bisect_left(ends, ideal - room, choice[0], choice[-1])
    high = bisect.bisect_right(ends, ideal + room, choice[0], choice[-1] + 1)
    clauses = [number for number in range(low, high) if _ends_clause(parts[number - 1])]
    return nearest(clauses) if clauses else best


def _ends_clause(unit: str) -> bool:
    return unicodedata.category(unit.rstrip(" ")[-1:] or " ") in ENDS
