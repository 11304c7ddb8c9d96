"""Attention as shades in a terminal, and pixels as a PNG."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

from torch import Tensor

from transduce.explain.tables import cells_of, padded

SHADES = " ·░▒▓█"
GAP = "   "
"""Between pictures beside each other."""


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


def png_of(pixels: Tensor) -> bytes:
    """Bytes (c, h, w) of 1 or 3 channels as a PNG."""
    c, h, w = pixels.shape
    lines = pixels.permute(1, 2, 0).reshape(h, w * c).numpy()
    raw = b"".join(b"\0" + line.tobytes() for line in lines)
    head = struct.pack(">IIBBBBB", w, h, 8, 2 if c == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


def abreast(pictures: Sequence[str], width: int) -> list[str]:
    """Pictures of several lines beside each other, as many as fit into this many cells; the
    others in further blocks below."""
    blocks: list[list[list[str]]] = []
    used = 0
    for picture in pictures:
        lines = padded(picture.split("\n"))
        cells = cells_of(lines[0]) + len(GAP)
        if not blocks or used + cells > width + len(GAP):
            blocks.append([])
            used = 0
        blocks[-1].append(lines)
        used += cells
    return ["\n".join(_beside(block)) for block in blocks]


def _beside(block: Sequence[Sequence[str]]) -> Iterator[str]:
    for i in range(max(map(len, block))):
        cells = (lines[i] if i < len(lines) else " " * cells_of(lines[0]) for lines in block)
        yield GAP.join(cells).rstrip()


def _right(text: str, cells: int) -> str:
    """The end of a text, cut to this many terminal cells."""
    return " " * (cells - cells_of(text)) + text


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)
