"""Grid of a sweep: lists of values and ranges, and all their combinations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transduce.config import apply_overrides
from transduce.errors import SettingError

Overrides = tuple[str, ...]
"""What makes one run of a sweep differ from the others: `a.b=value`, as `--set` takes it."""
BRACKETS = {"[": "]", "{": "}", "(": ")"}


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, both included; whole ones if both ends are."""

    low: float
    high: float

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def logarithmic(self) -> bool:
        """Whether to go by ratios, as for learning rates, not by differences."""
        return self.low > 0 and self.high >= 10 * self.low


Values = tuple[str, ...] | Range
"""What a setting may be: values as TOML, or bare words; or a range to search."""


class Grid:
    """Every combination once, the last setting varying fastest."""

    def __init__(self, varied: Mapping[str, Values]) -> None:
        self._combinations = combinations(varied)

    def ask(self) -> Overrides | None:
        """The next combination."""
        return next(self._combinations, None)

    def tell(self, overrides: Overrides, result: object) -> None:
        """Nothing depends on it."""


def combinations(varied: Mapping[str, Values]) -> Iterator[Overrides]:
    """Every combination of the values; of a range its two ends."""
    lists = [
        (repr(values.low), repr(values.high)) if isinstance(values, Range) else values
        for values in varied.values()
    ]
    for chosen in itertools.product(*lists):
        yield tuple(f"{name}={text}" for name, text in zip(varied, chosen, strict=True))


def read_varied(overrides: Iterable[str]) -> tuple[list[str], dict[str, Values]]:
    """Overrides of one value, which hold for all runs; and what the others let vary, by name.

    Raises SettingError for one that cannot be understood, or a setting that is named twice.
    """
    fixed: list[str] = []
    varied: dict[str, Values] = {}
    names: set[str] = set()
    for override in overrides:
        apply_overrides({}, [override])  # says what is wrong with its form
        name, _, text = override.partition("=")
        name = ".".join(key.strip() for key in name.split("."))
        if name in names:
            raise SettingError(f"--set {name} is given twice; list all its values in one")
        names.add(name)
        values = _values(name, text)
        if isinstance(values, Range) or len(values) > 1:
            varied[name] = values
        else:
            fixed.append(override)
    return fixed, varied


def value_of(text: str) -> Any:
    """What a text means where `--set` gives it: TOML, else the text itself."""
    return apply_overrides({}, [f"value={text}"])["value"]


def _values(name: str, text: str) -> Values:
    low, dots, high = text.partition("..")
    if dots and (ends := [_number(low), _number(high)]) and None not in ends:
        low_end, high_end = (end for end in ends if end is not None)
        if not low_end < high_end:
            raise SettingError(f"--set {name}={text}: a range goes from the smaller number up")
        return Range(low_end, high_end)
    parts = split_values(text)
    if len(parts) > 1 and "" in parts:
        raise SettingError(f"--set {name}={text}: there is no value beside one of the commas")
    return tuple(dict.fromkeys(map(_canonical, parts)))


def split_values(text: str) -> list[str]:
    """The text cut at its commas, but for those within brackets or quotation marks."""
    parts: list[str] = []
    closing: list[str] = []
    begin = 0
    for place, sign in enumerate(text):
        if closing and sign == closing[-1]:
            closing.pop()
        elif closing and closing[-1] in "\"'":
            continue
        elif sign in "\"'":
            closing.append(sign)
        elif sign in BRACKETS:
            closing.append(BRACKETS[sign])
        elif sign == "," and not closing:
            parts.append(text[begin:place])
            begin = place + 1
    return [part.strip() for part in (*parts, text[begin:])]


def _canonical(text: str) -> str:
    """One spelling for each number, so that 1e-3 is known again as 0.001."""
    number = _number(text)
    return text if number is None else repr(number)


def _number(text: str) -> int | float | None:
    value = value_of(text.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
