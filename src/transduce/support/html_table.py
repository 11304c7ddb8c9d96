"""Small tables of HTML, in which a notebook shows results."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers have four digits and are set right, texts are escaped."""
    cells = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"


def html_shades(
    columns: Sequence[str], rows: Sequence[str], weights: Sequence[Sequence[float]]
) -> str:
    """A table of weights between 0 and 1 as shades; the number of each is its title."""
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
