"""Small tables: plain text for a terminal, HTML for a notebook."""

import html
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from transduce.errors import printable


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers have four digits and are set right, texts are escaped."""
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"


def html_shades(
    columns: Sequence[str], rows: Sequence[str], weights: Sequence[Sequence[float]]
) -> str:
    """A table of weights between 0 and 1 as shades; the number of each is its title.

    columns, rows: names.
    """
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ("", *columns))
    lines = "".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(map(_shade, values))}</tr>"
        for name, values in zip(rows, weights, strict=True)
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _shade(weight: float) -> str:
    return f'<td title="{weight:.2f}" style="background: rgba(31, 119, 180, {weight:.2f})"></td>'


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f'<td style="text-align: right">{value:.4g}</td>'
    if isinstance(value, int):
        return f'<td style="text-align: right">{value:,}</td>'
    return f'<td style="text-align: left">{html.escape(str(value))}</td>'


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


SHADES = " ·░▒▓█"


def attention_in_terminal(
    columns: Sequence[str], rows: Sequence[str], weights: Sequence[Sequence[float]]
) -> str:
    """A grid of shades, a line per row: the darker, the larger the weight.

    weights: weights over the columns for each row, between 0 and 1.  Without rows, for an empty
    output, only the column names are drawn.
    """
    label = max(map(cells_of, rows), default=0)
    cell = max(map(cells_of, columns)) + 1
    lines = [" " * label + "".join(_right(column, cell) for column in columns)]
    for name, values in zip(rows, weights, strict=True):
        shades = (SHADES[min(int(v * len(SHADES)), len(SHADES) - 1)] * min(cell, 2) for v in values)
        lines.append(_right(name, label) + "".join(f"{shade:>{cell}}" for shade in shades))
    return "\n".join(lines)


def _right(text: str, cells: int) -> str:
    """The end of a text, cut to this many terminal cells."""
    return " " * (cells - cells_of(text)) + text
