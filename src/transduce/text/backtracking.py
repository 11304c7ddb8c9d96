"""Regular expressions with exponential backtracking, recognised by their form.

Backtracking takes exponential time if a repeated group can match one text in several ways: it
contains a repetition itself, as in `(a+)+`, or alternatives, as in `(a|aa)*`.  Repetitions in a row
take polynomial time, with their number as exponent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_IN_A_ROW = 3
"""Maximum unbounded repetitions in one alternative; the usual tokenizers have at most two."""

_TIMES = re.compile(r"\{(\d*)(,?)(\d*)\}")
_CODE = re.compile(r"\\(?:[pP]\{[^}]*\}|x\{[^}]*\}|k<[^>]*>|.)", re.DOTALL)
_GROUP = re.compile(r"\?(?:<[=!]|<\w+>|[=!:>]|[imsx-]*:?)")
_AROUND = ("?=", "?!", "?<=", "?<!")
_PLACES = ("^", "$", "\\b", "\\B", "\\A", "\\z", "\\Z", "\\G")


@dataclass(frozen=True)
class Form:
    """Properties of an expression that follow from its form."""

    several: bool = False
    """True if it can match one text in several ways."""
    least: float = 1
    """Minimum number of characters it matches."""
    runs_away: bool = False
    """True if a search may run for ever on some text."""


def form_of(pattern: str) -> Form:
    """Form of an expression; the worst case for very deep nesting."""
    try:
        return _Reader(pattern).whole()
    except RecursionError:
        return Form(several=True, least=0, runs_away=True)


class _Reader:
    """Recursive-descent parser of one expression."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._runs_away = False

    def whole(self) -> Form:
        """Read all of it."""
        several, least = self._group()
        while self._at < len(self._pattern):  # a bracket that nothing opened
            self._at += 1
            self._group()
        return Form(several, least, self._runs_away)

    def _group(self) -> tuple[bool, float]:
        """Read alternatives up to the end of their group: several ways, and the least length."""
        several = False
        repetitions = 0
        lengths: list[float] = [0]
        firsts = [self._literal()]
        while self._at < len(self._pattern) and self._pattern[self._at] != ")":
            if self._pattern[self._at] == "|":
                self._at += 1
                repetitions = 0
                lengths.append(0)
                firsts.append(self._literal())
                continue
            inner, length = self._atom()
            least, most, gives_back = self._times()
            lengths[-1] += length * least
            unbounded = gives_back and most > 1 and most != least
            repetitions += unbounded
            several |= unbounded or inner
            self._runs_away |= inner and gives_back and most > 1
            self._runs_away |= repetitions > MAX_IN_A_ROW
        told_apart = len(firsts) == 1 or (all(firsts) and len(set(firsts)) == len(firsts))
        return several or not told_apart, min(lengths)

    def _literal(self) -> str:
        """Character that an alternative begins with; empty if it is not a plain one."""
        first = self._pattern[self._at : self._at + 1]
        return first if first.isalnum() else ""

    def _atom(self) -> tuple[bool, float]:
        """Read a character, a class or a group: several ways, and the least length."""
        first = self._pattern[self._at]
        if first == "\\":
            code = _CODE.match(self._pattern, self._at)
            self._at = code.end() if code else len(self._pattern)
            return False, 0 if code and code.group() in _PLACES else 1
        if first == "[":
            self._class()
            return False, 1
        self._at += 1
        if first != "(":
            return False, 0 if first in _PLACES else 1
        kind = _GROUP.match(self._pattern, self._at)
        self._at = kind.end() if kind else self._at
        several, least = self._group()
        self._at += 1  # the bracket that closes it
        name = kind.group() if kind else ""
        return several and name != "?>", 0 if name in _AROUND else least

    def _class(self) -> None:
        """Read a class of characters, possibly nested."""
        self._at += 1
        if self._pattern.startswith("^", self._at):
            self._at += 1
        if self._pattern.startswith("]", self._at):
            self._at += 1
        while self._at < len(self._pattern) and self._pattern[self._at] != "]":
            if self._pattern[self._at] == "[":
                self._class()
            else:
                self._at += 2 if self._pattern[self._at] == "\\" else 1
        self._at += 1

    def _times(self) -> tuple[float, float, bool]:
        """Read a quantifier: minimum, maximum, and True if it backtracks."""
        least: float = 1
        most: float = 1
        gives_back = True
        while self._at < len(self._pattern):
            character = self._pattern[self._at]
            if character in "*+?" and most > 1:  # lazy, or possessive
                gives_back &= character != "+"
                self._at += 1
            elif character in "*+":
                least, most = float(character == "+"), float("inf")
                self._at += 1
            elif character == "?":
                least = 0
                self._at += 1
            elif times := _TIMES.match(self._pattern, self._at):
                least = int(times[1] or 0)
                most = (int(times[3]) if times[3] else float("inf")) if times[2] else least
                self._at = times.end()
            else:
                break
        return least, most, gives_back
