"""Figures: each stands on one page, and others link to it."""

import re
from itertools import combinations
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
FIGURE = re.compile(r"(?<![\d.,/-])\d{1,2}\.\d\d(?![\d.])")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
GENERATED = ("recipe.md", "api.md")
REPEATED = 3
"""So many equal figures in two lines are no chance."""


def lines_with_figures(path: Path) -> list[tuple[str, frozenset[str]]]:
    """Lines with several figures above 2, of which two measurements seldom have the same three.

    Rows of results.md sum a recipe up, whose page may have more of it.
    """
    found = []
    for line in FENCE.sub("", path.read_text(encoding="utf-8")).splitlines():
        figures = frozenset(one for one in FIGURE.findall(line) if float(one) > 2)
        if len(figures) >= REPEATED and not (path.name == "results.md" and line.startswith("|")):
            found.append((line, figures))
    return found


def test_no_measurement_stands_on_two_pages() -> None:
    pages = {
        path.name: lines_with_figures(path)
        for path in sorted(DOCS.glob("*.md"))
        if not path.name.endswith(".zh.md") and path.name not in GENERATED
    }
    repeated = [
        f"{one}: {line[:80]} | {other}: {again[:80]} | {', '.join(sorted(figures & seen))}"
        for one, other in combinations(pages, 2)
        for line, figures in pages[one]
        for again, seen in pages[other]
        if len(figures & seen) >= REPEATED
    ]
    assert repeated == []
