"""Lines of limited width, and shares of a text, cut where the reader expects it."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

from transduce.text.scripts import is_unspaced

TAG = re.compile(r"<[^<>]*>")
ENDS = ("Pe", "Pf", "Po")
"""Categories of closing marks and of marks that end a clause."""
SKIPPED = (" ", *"-‐–—")
"""Characters that no unit begins with."""
CLAUSE = 0.25
"""Share of the ideal width that a cut may be off to fall at the end of a clause."""


def width(text: str) -> int:
    """Columns of a text: tags and combining characters have none, wide ones of East Asia two."""
    return sum(
        0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in ("W", "F"))
        for c in TAG.sub("", text)
    )


def joined_lines(lines: Sequence[str]) -> str:
    """Lines joined into one, with a space between two, except in scripts without spaces."""
    text = ""
    for line in lines:
        if text and line and not (is_unspaced(text[-1]) and is_unspaced(line[0])):
            text += " "
        text += line
    return text


def units(text: str) -> Iterator[str]:
    """Unbreakable parts of a text without double spaces, each with the space after it.

    `joined_lines` of any grouping of them, stripped, is the text.  A tag `<...>` is not cut, and
    none but the first begins with a dash, the mark of a speaker.
    """
    inside = {place for tag in TAG.finditer(text) for place in range(tag.start() + 1, tag.end())}
    start = 0
    for place in range(1, len(text)):
        before, after = text[place - 1], text[place]
        if place in inside or after in SKIPPED:
            continue
        blank = before == " "
        if blank:
            before = text[place - 2 : place - 1]
        unspaced = before != "" and is_unspaced(before) and is_unspaced(after)
        if blank != unspaced and not (unspaced and _clings(before, after)):
            yield text[start:place]
            start = place
    if text:
        yield text[start:]


def _clings(before: str, after: str) -> bool:
    """True between characters of a script without spaces where no line ends: around marks."""
    return unicodedata.category(after) in ENDS or unicodedata.category(before) in ("Ps", "Pi")


def wrapped(text: str, columns: int) -> list[str]:
    """A text in the fewest lines of at most `columns`, of like widths; longer units stay whole."""
    parts = list(units(text))
    lines = _filled(parts, columns)
    for narrower in range(-(-width(text) // len(lines)), columns):
        balanced = _filled(parts, narrower)
        if len(balanced) == len(lines):
            return balanced
    return lines


def _filled(parts: Sequence[str], columns: int) -> list[str]:
    lines = [""]
    for part in parts:
        if lines[-1] and width((lines[-1] + part).rstrip(" ")) > columns:
            lines.append("")
        lines[-1] += part
    return [line.strip(" ") for line in lines]


def shared_out(text: str, shares: Sequence[float]) -> list[str]:
    """A text cut into as many parts as there are shares, of widths close to them.

    Of the places near the ideal one, an end of a clause is preferred.  A text of fewer units than
    shares leaves the last parts empty.
    """
    rest, parts = list(units(text)), []
    for i in range(len(shares) - 1):
        total = sum(shares[i:])
        share = shares[i] / total if total else 1 / (len(shares) - i)
        widths = list(itertools.accumulate(map(width, rest)))
        ideal = share * widths[-1] if widths else 0.0
        last = max(len(rest) - (len(shares) - 1 - i), 1)
        costs = [
            abs(so_far - ideal) - (CLAUSE * ideal if _ends_clause(unit) else 0.0)
            for unit, so_far in zip(rest[:last], widths, strict=False)
        ]
        cut = 1 + costs.index(min(costs)) if costs else 0
        parts.append("".join(rest[:cut]).strip(" "))
        rest = rest[cut:]
    return [*parts, "".join(rest).strip(" ")]


def _ends_clause(unit: str) -> bool:
    return unicodedata.category(unit.rstrip(" ")[-1:] or " ") in ENDS
