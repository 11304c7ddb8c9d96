"""Make docs/pictures/social.png anew: the front page's first sentence, for previews elsewhere.

Needs Chromium, playwright and a font with Chinese; the picture holds the glyphs.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

HERE = Path(__file__).parent
PICTURE = HERE.parent / "pictures" / "social.png"
WIDTH, HEIGHT = 1200, 630
STEP = 4  # writes student
STYLE = """
body { margin: 0; width: 1200px; height: 630px; background: #fff; color: #1a1a1a;
  font-family: "Noto Sans CJK SC", "WenQuanYi Zen Hei", sans-serif; }
main { padding: 56px 72px; }
h1 { font-size: 52px; margin: 0 0 40px; }
p { display: flex; gap: 14px; margin: 0 0 44px; font-size: 76px; }
span { padding: 0 14px 8px; border-radius: 12px; }
.written { font-size: 60px; }
.now { outline: 5px solid #1254a0; }
footer { font-size: 34px; color: #555; }
"""


def drawn() -> str:
    """The picture as a page."""
    first = json.loads((HERE.parent / "book" / "sentences.json").read_text(encoding="utf-8"))[0]
    step = first["steps"][STEP]
    source = "".join(
        f'<span style="background: rgb(18 84 160 / {100 * weight:.0f}%)">{sign}</span>'
        for sign, weight in zip(first["source"][:-1], step["weights"], strict=False)
    )
    written = "".join(
        f"<span{' class=now' if each is step else ''}>{each['token'].lstrip('▁')}</span>"
        for each in first["steps"][:-1]
    )
    return (
        f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style><main><h1>transduce</h1>'
        f'<p>{source}</p><p class="written">{written}</p>'
        "<footer>Attention Is All You Need: train, look inside, serve<br>"
        "训练、看清、使用你自己的 Transformer</footer></main>"
    )


def write(picture: Path) -> None:
    """Photograph the page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_content(drawn())
        page.screenshot(path=str(picture))
        browser.close()


if __name__ == "__main__":
    write(PICTURE)
