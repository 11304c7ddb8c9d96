"""Draw attention as shades in a terminal, or as a self-contained HTML page."""

from __future__ import annotations

import html
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


def _right(text: str, cells: int) -> str:
    """The end of a text, cut to this many terminal cells."""
    return " " * (cells - _cells(text)) + text


def _cells(text: str) -> int:
    """Terminal cells of a text: two for a Chinese character, none for an accent."""
    return sum(
        2 if unicodedata.east_asian_width(c) in "WF" else unicodedata.combining(c) == 0
        for c in text
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
        color: #1c1e21; background: #fff; }}
h1 {{ font-size: 1.4rem; }}
figure {{ display: inline-block; margin: 0 2rem 2rem 0; vertical-align: top; }}
figcaption {{ font-weight: 600; margin-bottom: .5rem; }}
table {{ border-collapse: collapse; }}
th {{ font: 14px ui-monospace, monospace; padding: .2rem .4rem; }}
tbody th {{ text-align: right; }}
td {{ width: 2rem; height: 2rem; border: 1px solid #fff; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{explanation}</p>
{figures}
</body>
</html>
"""


def attention_page(title: str, explanation: str, figures: Sequence[str]) -> str:
    """A whole HTML page with figures made by `attention_figure`."""
    return _PAGE.format(
        title=html.escape(title), explanation=html.escape(explanation), figures="\n".join(figures)
    )


def attention_figure(
    caption: str,
    columns: Sequence[str],
    rows: Sequence[str],
    weights: Sequence[Sequence[float]],
) -> str:
    """A heat map as an HTML table; hovering over a cell shows its weight."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = []
    for name, values in zip(rows, weights, strict=True):
        cells = "".join(
            f'<td title="{html.escape(name)} looks at {html.escape(column)}: {value:.3f}" '
            f'style="background: rgba(18, 84, 160, {value:.3f})"></td>'
            for column, value in zip(columns, values, strict=True)
        )
        body.append(f"<tr><th>{html.escape(name)}</th>{cells}</tr>")
    return (
        f"<figure><figcaption>{html.escape(caption)}</figcaption>"
        f"<table><thead><tr><th></th>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></figure>"
    )
