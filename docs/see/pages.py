"""Make the finished pages anew: `pages.py [DIRECTORY]`, by default in place.

The data and the model of a page stay; its code, words and style are those of the package.  The
models themselves come from the commands of docs/book/pages.md.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from transduce.explain.page import page_of

HERE = Path(__file__).parent
PAGES = tuple(sorted(path.name for path in HERE.glob("*.html")))
SOURCES = (
    "<footer><small>Trained on, 训练数据: "
    "Tatoeba (tatoeba.org, manythings.org/anki; CC BY 2.0 FR) · 3AM (MaxyLee/3AM; MIT) · "
    "CC-CEDICT of 2023-11-07, shortened, 有删节 (cc-cedict.org; CC BY-SA 4.0) · "
    "messages of free software, 自由软件的消息 (docs/data.md)</small></footer>"
)
CREDITED = ("zh-en.html", "en-zh.html")


def content_of(page: Path) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Explanations of a page, and its model if it computes."""
    text = page.read_text(encoding="utf-8")
    scripts = {
        name: re.search(rf'<script id="{name}" type="application/json">(.*?)</script>', text, re.S)
        for name in ("data", "model")
    }
    data, model = (match and json.loads(match[1]) for match in scripts.values())
    assert data is not None, page
    return data, model


def write(directory: Path) -> None:
    """Write every page into the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        page = page_of(*content_of(HERE / name))
        if name in CREDITED:
            page = page.replace("</main>", f"</main>\n{SOURCES}", 1)
        (directory / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
