"""Draw attention as shades in a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

SHADES = " ·░▒▓█"


def attention_in_terminal(
    columns: Sequence[str], rows: Sequence[str], weights: Sequence[Sequence[float]]
) -> str:
    """A grid of shades, one line per row: the darker, the larger the weight.

    weights: weights over the columns for each row, between 0 and 1.  Without rows, for an empty
    output, only the column names are drawn.
    """
    label = max(map(_cells, rows), default=0)
    cell = max(map(_cells, columns)) + 1
    lines = [" " * label + "".join(_right(column, cell) for column in columns)]
    for name, values in zip(rows, weights, strict=True):
        shades = (SHADES[min(int(v * len(SHADES)), len(SHADES) - 1)] * min(cell, 2) for v in values)
        lines.append(_right(name, label) + "".join(f"{shade:>{cell}}" for shade in shades))
    return "\n".join(lines)


def padded(texts: Sequence[str]) -> list[str]:
    """The texts, each at the left end of as many cells as the widest takes."""
    width = max(map(_cells, texts), default=0)
    return [text + " " * (width - _cells(text)) for text in texts]


def _right(text: str, cells: int) -> str:
    """The end of a text, cut to this many terminal cells."""
    return " " * (cells - _cells(text)) + text


def _cells(text: str) -> int:
    """Terminal cells of a text: two for a Chinese character, none for an accent."""
    return sum(
        2 if unicodedata.east_asian_width(c) in "WF" else unicodedata.combining(c) == 0
        for c in text
    )
