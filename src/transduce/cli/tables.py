"""Plain-text tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from transduce.errors import printable

NOTHING = "-"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines of a table with aligned columns; numbers are right-aligned."""
    rows = list(rows)
    cells = [list(head), *([shown(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [
        any(_is_number(row[i]) for row in rows)
        and all(_is_number(row[i]) or row[i] is None for row in rows)
        for i in range(len(head))
    ]
    for line in cells:
        parts = [
            f"{cell:>{width}}" if to_right else f"{cell:<{width}}"
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        yield "  ".join(parts).rstrip()


def shown(value: Any) -> str:
    """Short text of a value."""
    if value is None:
        return NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float):
        return printable(str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.5g}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
