"""Attention of a speller as an SVG on stdout: `attention.py runs/demo WORD...`.

Draws one grid per word: letters across, sounds down, opacity for the weight.  Text is a mid grey
and nothing is filled behind it, so the picture is legible on light and dark pages.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Sequence

import transduce

CELL = 22
GAP = 56
GREY, BLUE = "#768390", "#2f81f7"


def grid(left: int, letters: Sequence[str], sounds: Sequence[str], weights: object) -> list[str]:
    """Cells of one word, its letters above and its sounds at the left."""
    top = 2 * CELL
    lines = [
        f'<text x="{left + (i + 0.5) * CELL:g}" y="{top - 7}">{html.escape(letter)}</text>'
        for i, letter in enumerate(letters)
    ]
    for row, (sound, values) in enumerate(zip(sounds, weights, strict=True)):
        y = top + row * CELL
        lines.append(f'<text x="{left - 16}" y="{y + 15}">{html.escape(sound)}</text>')
        lines += [
            f'<rect x="{left + i * CELL + 1}" y="{y + 1}" width="{CELL - 2}" height="{CELL - 2}" '
            f'rx="3" fill="{BLUE}" fill-opacity="{max(float(value), 0.06):.2f}"/>'
            for i, value in enumerate(values)
        ]
    return lines


def picture(run: transduce.Run, words: Sequence[str]) -> str:
    """The grids of all words, side by side."""
    lines, left, rows = [], GAP - CELL, 0
    for word in words:
        sounds = run(word).text
        seen = run.align(word, sounds, layer=0)
        letters, rows_of = list(word), sounds.split()
        weights = [row[: len(letters)] for row in seen.weights[: len(rows_of)].tolist()]
        centre = left + len(letters) * CELL / 2
        lines.append(f'<text x="{centre:g}" y="14" font-weight="bold">{html.escape(word)}</text>')
        lines += grid(left, letters, rows_of, weights)
        left += len(letters) * CELL + GAP
        rows = max(rows, len(rows_of))
    width, height = left - GAP + CELL // 2, (rows + 2) * CELL + 4
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img">',
            f"<title>Attention from sounds to letters: {html.escape(', '.join(words))}</title>",
            f'<g font-family="ui-monospace, monospace" font-size="13" text-anchor="middle" '
            f'fill="{GREY}">',
            *lines,
            "</g>",
            "</svg>",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(picture(transduce.load(sys.argv[1]), sys.argv[2:]) + "\n")
