"""Grid of a sweep: lists of values and ranges, and all their combinations."""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from transduce.errors import SettingError
from transduce.settings.sections import apply_overrides

Overrides = tuple[str, ...]
"""Settings of a run of a sweep that differ from the others: `a.b=value`, as for `--set`."""
BRACKETS = {"[": "]", "{": "}", "(": ")"}


@dataclass(frozen=True)
class Range:
    """All numbers from `low` to `high`, inclusive; whole numbers if both ends are."""

    low: float
    high: float

    @property
    def whole(self) -> bool:
        """True for whole numbers only."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def logarithmic(self) -> bool:
        """Sample in the log domain, as for learning rates."""
        return self.low > 0 and self.high >= 10 * self.low


Values = tuple[str, ...] | Range
"""Values of a setting: a list, as TOML or bare words, or a range to search."""


def combinations(varied: Mapping[str, Values]) -> Iterator[Overrides]:
    """Every combination of the values; for a range, its two ends."""
    lists = [
        (repr(values.low), repr(values.high)) if isinstance(values, Range) else values
        for values in varied.values()
    ]
    for chosen in itertools.product(*lists):
        yield tuple(f"{name}={text}" for name, text in zip(varied, chosen, strict=True))


def read_varied(overrides: Iterable[str]) -> tuple[list[str], dict[str, Values]]:
    """Split overrides into fixed settings, for all runs, and values of varied settings, by name.

    Raises SettingError for an invalid override, or a setting named twice.
    """
    fixed: list[str] = []
    varied: dict[str, Values] = {}
    names: set[str] = set()
    for override in overrides:
        apply_overrides({}, [override])  # raises for an invalid form
        name, _, text = override.partition("=")
        name = ".".join(key.strip() for key in name.split("."))
        if name in names:
            raise SettingError(f"--set {name} is given twice; list all values in one option")
        names.add(name)
        values = _values(name, text)
        if isinstance(values, Range) or len(values) > 1:
            varied[name] = values
        else:
            fixed.append(override)
    return fixed, varied


def value_of(text: str) -> Any:
    """Parse a value as `--set` does: TOML, else the text itself."""
    return apply_overrides({}, [f"value={text}"])["value"]


def _values(name: str, text: str) -> Values:
    low, dots, high = text.partition("..")
    if dots and (ends := [_number(low), _number(high)]) and None not in ends:
        low_end, high_end = (end for end in ends if end is not None)
        if not low_end < high_end:
            raise SettingError(f"--set {name}={text}: a range must start at its smaller end")
        return Range(low_end, high_end)
    parts = split_values(text)
    if len(parts) > 1 and "" in parts:
        raise SettingError(f"--set {name}={text}: empty value; remove the extra comma")
    return tuple(dict.fromkeys(map(_canonical, parts)))


def split_values(text: str) -> list[str]:
    """Split a text at its commas, except within brackets or quotation marks."""
    parts: list[str] = []
    closing: list[str] = []
    begin = 0
    for index, sign in enumerate(text):
        if closing and sign == closing[-1]:
            closing.pop()
        elif closing and closing[-1] in "\"'":
            continue
        elif sign in "\"'":
            closing.append(sign)
        elif sign in BRACKETS:
            closing.append(BRACKETS[sign])
        elif sign == "," and not closing:
            parts.append(text[begin:index])
            begin = index + 1
    return [part.strip() for part in (*parts, text[begin:])]


def _canonical(text: str) -> str:
    """A single spelling for each number, so that 1e-3 equals 0.001."""
    number = _number(text)
    return text if number is None else repr(number)


def _number(text: str) -> int | float | None:
    value = value_of(text.strip())
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
