"""Detag: a text without its placeholders, and the pieces to put back.

A piece is a tag of a pair around words, or a unit: placeholders beside each other with what moves
with them: quotes and brackets around them, marks and blanks between them, pairs without words.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from transduce.localise.document import Span
from transduce.localise.placeholders import Protected
from transduce.localise.tags import RAISED, is_break
from transduce.text.scripts import is_of_word, is_unspaced

CLOSING = ".,;:!?)]}…»”’"
"""Marks without a space before them."""
OPENING = "([{«„“‘¿¡"
"""Marks without a space behind them."""
QUOTES = frozenset(
    (
        *("()", "[]", "{}", "<>", "«»", "»«", "„“", "„”", "“”", "‘’", "‚‘", "‹›", "''", '""', "`'"),
        *("``", "（）", "「」", "『』", "【】", "《》", "〈〉"),
    )
)
"""Pairs of quotes and brackets that move with what they enclose."""
BETWEEN = " ,:;/=|+*&.…–—-"
"""Marks that join two units, or a unit with an end of the text."""
ACCELERATOR_SIGNS = ("&", "_")
"""Placeholders within a word."""
MAX_BETWEEN = 3
"""Maximum number of such marks between two units."""


class Piece(NamedTuple):
    """Marks, with what moves with them.

    offset:  in the text without them.
    origin:  in the text with marks.
    is_unit: False for a tag of a pair around words.
    is_gap:  True if a blank stands in its place, as it is all that parts two words.
    """

    text: str
    offset: int
    origin: int
    is_unit: bool
    is_gap: bool = False


class Detagged(NamedTuple):
    """A text without placeholders, and its pieces in order."""

    text: str
    pieces: tuple[Piece, ...]


def detagged(source: Protected) -> Detagged:
    """The text of a protected text without its marks and the spaces that then are needless."""
    text = source.text
    before, after = _visible(source)
    plain: list[str] = []
    pieces: list[Piece] = []
    start = 0
    for unit in (*_units(source), Span(len(text), len(text))):
        for i in range(start, unit.start):
            if text[i] in source.names:
                pieces.append(Piece(text[i], len(plain), i, False))
            else:
                plain.append(text[i])
        if not unit.start < (start := unit.end):
            break
        moved, following = text[unit.start : unit.end], text[start : start + 1]
        if following == " " and (not plain or plain[-1] == " "):
            moved, start = moved + " ", start + 1
        elif text[unit.start - 1 : unit.start] == " " and (after[start] or ".") in CLOSING:
            moved = plain.pop() + moved
        parts_words = is_of_word(before[unit.start]) and is_of_word(after[unit.end])
        words = [source.names[c] for c in moved if source.kinds.get(c) == "text"]
        is_gap = parts_words and any(name not in ACCELERATOR_SIGNS for name in words)
        if any(is_break(source.names[c]) for c in moved if source.kinds.get(c) == "void"):
            is_gap = _parts(before[unit.start], after[unit.end])
        pieces.append(Piece(moved, len(plain), unit.start, True, is_gap))
        plain += " " * is_gap
    return Detagged("".join(plain), tuple(pieces))


def _parts(before: str, after: str) -> bool:
    """True if a break between two characters is a blank."""
    if not before or not after or after in CLOSING or (before + after).strip() != before + after:
        return False
    return not (is_unspaced(before) and is_unspaced(after))


def _visible(source: Protected) -> tuple[list[str], list[str]]:
    """The last character before each place that is no mark, and the first from it on; or ""."""
    text = source.text

    def passing(characters: Iterable[str]) -> list[str]:
        return list(
            itertools.accumulate(
                characters, lambda last, c: last if c in source.names else c, initial=""
            )
        )

    return passing(text), passing(reversed(text))[::-1]


def _units(source: Protected) -> list[Span]:
    """Units of a protected text, in order, each with all that moves with it."""
    text, moves = source.text, _moving(source)
    units: list[Span] = []
    for moving, run in itertools.groupby(range(len(text)), moves.__getitem__):
        if not moving:
            continue
        places = list(run)
        limit = units[-1].end if units else 0
        unit = _widened(text, Span(places[0], places[-1] + 1), limit, moves)
        between = text[limit : unit.start]
        if units and len(between) <= MAX_BETWEEN and all(c in BETWEEN for c in between):
            joined = Span(units.pop().start, unit.end)
            unit = _widened(text, joined, units[-1].end if units else 0, moves)
        units.append(unit)
    return _with_ends(source, units)


def _moving(source: Protected) -> list[bool]:
    """True for each character of a placeholder alone, or of a pair of tags that moves as a
    whole."""
    text, pairs = source.text, source.partners(source.text)
    index = {c: i for i, c in enumerate(text) if c in source.names}
    marks = list(index.values())
    before, after = _visible(source)
    others = {index[a]: index[b] for pair in pairs.items() for a, b in (pair, pair[::-1])}

    def numbers(is_counted: Callable[[str], bool]) -> list[int]:
        return list(itertools.accumulate(map(is_counted, text), initial=0))

    words = numbers(lambda c: c not in source.names and c.isalnum())
    letters = numbers(lambda c: c not in source.names and c.isalpha())
    blanks = numbers(str.isspace)
    reach = [others.get(i, i) for i in marks]
    changes = [0] * (len(text) + 1)
    for start, end in pairs.items():
        first, last = index[start], index[end]
        inside = reach[bisect.bisect_right(marks, first) : bisect.bisect_left(marks, last)]
        if inside and not first < min(inside) <= max(inside) < last:
            continue  # another pair crosses its ends
        n_words, n_letters, n_blanks = (
            counts[last] - counts[first + 1] for counts in (words, letters, blanks)
        )
        if n_words:
            beside, is_raised = before[first], source.element(start) in RAISED
            is_sign = is_raised or not (n_letters or is_unspaced(beside))
            moves = is_sign and beside.isalnum() and not (after[last].isalnum() or n_blanks)
        else:
            moves = bool(inside) or first + 1 == last
        changes[first] += moves
        changes[last + 1] -= moves
    depths = itertools.accumulate(changes)
    return [
        depth > 0 or (c in source.names and i not in others)
        for i, (depth, c) in enumerate(zip(depths, text, strict=False))
    ]


def _widened(text: str, unit: Span, limit: int, moves: Sequence[bool]) -> Span:
    """A unit with the quotes and brackets around it, after the end `limit` of the unit before."""
    start, end = unit
    while limit < start and end < len(text) and not moves[end]:
        if text[start - 1] + text[end] not in QUOTES:
            break
        start, end = start - 1, end + 1
    return Span(start, end)


def _with_ends(source: Protected, units: list[Span]) -> list[Span]:
    """Units, with the marks between them and the ends of the text that no word is beside."""
    text = source.text
    if not units:
        return units
    while all(c in BETWEEN for c in text[: units[0].start]):
        end = units[0].end
        while end < len(text) and text[end] in BETWEEN:
            end += 1
        if len(units) == 1 or end < units[1].start:
            units[0] = Span(0, end)
            break
        units[:2] = [Span(0, units[1].end)]
    start, end = units[-1]
    before = "".join(c for c in text[:start] if c not in source.names).rstrip()
    if not before[-1:].isalnum() and not any(c.isalnum() or c in source.names for c in text[end:]):
        units[-1] = Span(start, len(text))
    return units
