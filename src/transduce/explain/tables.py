"""Plain-text tables."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from transduce.errors import printable

NOTHING = "-"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines of a table with aligned columns; numbers are right-aligned."""
    rows = list(rows)
    columns = []
    for i, name in enumerate(head):
        values = [row[i] for row in rows]
        numbers = [value for value in values if value is not None]
        is_right = bool(numbers) and all(map(_is_number, numbers))
        columns.append(padded([shown(name), *map(shown, values)], is_right))
    for cells in zip(*columns, strict=True):
        yield "  ".join(cells).rstrip()


def shown(value: Any) -> str:
    """Short text of a value."""
    if value is None:
        return NOTHING
    if not _is_number(value):
        return printable(str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.5g}"


def padded(texts: Sequence[str], right: bool = False) -> list[str]:
    """The texts, at the left or right end of as many terminal cells as the widest takes."""
    width = max(map(cells_of, texts), default=0)
    spaces = (" " * (width - cells_of(text)) for text in texts)
    return [
        space + text if right else text + space for text, space in zip(texts, spaces, strict=True)
    ]


def cells_of(text: str) -> int:
    """Terminal cells of a text: two for a Chinese character, none for an accent."""
    return sum(
        2 if unicodedata.east_asian_width(c) in "WF" else unicodedata.combining(c) == 0
        for c in text
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
