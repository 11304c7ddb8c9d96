"""Draw the pictures of the book: `pictures.py [DIRECTORY]`, by default beside this file.

Figures come from the package itself (attention, masks, positions, schedule, shapes) and, for heads,
beam and film, from finished pages.  Nothing is trained; the same files come out again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import figures
import mechanisms
import run_pictures
import schemes
from canvas import Canvas
from chinese import in_chinese

HERE = Path(__file__).parent

PICTURES: dict[str, Callable[[], Canvas]] = {
    "recurrence": schemes.recurrence,
    "match": mechanisms.match,
    "addressing": mechanisms.addressing,
    "scaled-dot": mechanisms.scaled_dot,
    "attention": figures.attention,
    "variance": figures.variance,
    "masks": figures.masks,
    "multi-head": schemes.multi_head,
    "two-heads": mechanisms.two_heads,
    "heads": lambda: run_pictures.heads(run_pictures.computed(HERE / "paper.html")),
    "film": lambda: run_pictures.film(run_pictures.data_of(HERE / "copy.html")),
    "embedding-sum": mechanisms.embedding_sum,
    "positions": figures.positions,
    "residual": schemes.residual,
    "figure-1": schemes.figure_1,
    "schedule": figures.schedule,
    "convolution": figures.convolution,
    "text-cnn": mechanisms.text_cnn,
    "beam": lambda: run_pictures.beam(run_pictures.computed(HERE / "paper.html")),
}


def draw(directory: Path) -> None:
    """Write every picture into the directory, in English and in Chinese."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        svg = picture().svg()
        (directory / f"{name}.svg").write_text(svg, encoding="utf-8")
        (directory / f"{name}.zh.svg").write_text(in_chinese(svg), encoding="utf-8")


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
