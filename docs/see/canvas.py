"""Hand-made SVG: text, boxes, arrows and heat maps in colours for light and dark pages."""

from __future__ import annotations

import html
import itertools
from collections import defaultdict
from collections.abc import Sequence

GREY, BLUE, ORANGE, GREEN, RED = "#768390", "#2f81f7", "#d1791c", "#2da44e", "#e5534b"
LEVELS = 20
"""Shades of a heat map."""


def number(value: float) -> str:
    """A coordinate or an opacity, without needless digits."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


class Canvas:
    """A picture under construction; nothing is filled behind it."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.size, self.title = (number(width), number(height)), title
        self.parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        fill: str = GREY,
        anchor: str = "middle",
        size: int = 13,
        bold: bool = False,
    ) -> None:
        """A line of text on the baseline y."""
        more = "" if anchor == "middle" else f' text-anchor="{anchor}"'
        more += "" if size == 13 else f' font-size="{size}"'
        more += "" if fill == GREY else f' fill="{fill}"'
        more += ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{number(x)}" y="{number(y)}"{more}>{html.escape(text, quote=False)}</text>'
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        stroke: str = GREY,
        fill: str = "none",
        opacity: float = 1,
        dashed: bool = False,
    ) -> None:
        """A rectangle with round corners; the opacity is of its filling."""
        more = f' fill-opacity="{number(opacity)}"' if fill != "none" and opacity < 1 else ""
        more += ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" '
            f'height="{number(height)}" rx="4" fill="{fill}" stroke="{stroke}"{more}/>'
        )

    def labelled(
        self, x: float, y: float, width: float, height: float, text: str, stroke: str = GREY
    ) -> None:
        """A box with one line of text in its middle."""
        self.box(x, y, width, height, stroke)
        self.text(x + width / 2, y + height / 2 + 4.5, text)

    def line(
        self,
        points: Sequence[tuple[float, float]],
        stroke: str = GREY,
        width: float = 1.2,
        head: bool = False,
        opacity: float = 1,
        dashed: bool = False,
    ) -> None:
        """A line through the points, with a head at its end if wanted."""
        path = "M" + "L".join(f"{number(x)},{number(y)}" for x, y in points)
        if head:
            path += self._head(points[-2], points[-1])
        more = "" if opacity == 1 else f' stroke-opacity="{number(opacity)}"'
        more += ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{stroke}" stroke-width="{number(width)}"{more}/>'
        )

    @staticmethod
    def _head(before: tuple[float, float], tip: tuple[float, float]) -> str:
        dx, dy = tip[0] - before[0], tip[1] - before[1]
        length = (dx * dx + dy * dy) ** 0.5 or 1.0
        dx, dy = 6 * dx / length, 6 * dy / length
        left = (tip[0] - dx - dy * 0.6, tip[1] - dy + dx * 0.6)
        right = (tip[0] - dx + dy * 0.6, tip[1] - dy - dx * 0.6)
        return (
            f"M{number(left[0])},{number(left[1])}L{number(tip[0])},{number(tip[1])}"
            f"L{number(right[0])},{number(right[1])}"
        )

    def heat(
        self, x: float, y: float, values: Sequence[Sequence[float]], cell: float, tall: float = 0
    ) -> None:
        """A map of values from -1 to 1: blue above zero, red below, a frame around it."""
        tall = tall or cell
        shades: dict[int, list[str]] = defaultdict(list)
        for i, row in enumerate(values):
            start = 0
            levels = [self._level(value) for value in row]
            for level, run in itertools.groupby(levels):
                length = len(list(run))
                if level:
                    place = f"M{number(x + start * cell)},{number(y + i * tall)}"
                    wide = number(length * cell)
                    shades[level].append(f"{place}h{wide}v{number(tall)}h-{wide}z")
                start += length
        for level in sorted(shades):
            self.parts.append(
                f'<path fill="{BLUE if level > 0 else RED}" '
                f'fill-opacity="{number(abs(level) / LEVELS)}" d="{"".join(shades[level])}"/>'
            )
        width, height = len(values[0]) * cell, len(values) * tall
        self.parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" '
            f'height="{number(height)}" fill="none" stroke="{GREY}" stroke-opacity="0.5"/>'
        )

    @staticmethod
    def _level(value: float) -> int:
        level = int(abs(value) * LEVELS + 0.5 + 1e-6)
        return level if value > 0 else -level

    def svg(self) -> str:
        """The picture as text."""
        width, height = self.size
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" role="img">',
                f"<title>{html.escape(self.title, quote=False)}</title>",
                f'<g font-family="ui-sans-serif, system-ui, sans-serif" font-size="13" '
                f'text-anchor="middle" fill="{GREY}">',
                *self.parts,
                "</g>",
                "</svg>\n",
            ]
        )
