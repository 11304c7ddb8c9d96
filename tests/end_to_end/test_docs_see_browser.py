"""The finished explain pages of the documentation, opened from disk in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.browser import needs_chromium

pytestmark = needs_chromium

SEE = Path(__file__).parents[2] / "docs" / "see"


@pytest.mark.parametrize(
    "name", ["music.html", "copy.html", "paper.html", "speller.html", "gpt.html"]
)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_finished_pages_open_without_a_message(
    browser: Any, name: str, width: int, scheme: str
) -> None:
    size = {"width": width, "height": 900}
    context = browser.new_context(viewport=size, color_scheme=scheme, locale="en-GB")
    page, text, asked = context.new_page(), [], []
    page.on("console", lambda message: text.append(message.text))
    page.on("pageerror", lambda error: text.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto((SEE / name).as_uri())
    for language in ("en", "zh-CN"):
        assert page.evaluate("document.documentElement.lang") == language
        tabs = page.get_by_role("tab")
        assert tabs.count() == 7
        for n in range(7):
            tabs.nth(n).click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        if language == "en":
            page.get_by_role("button", name="中文").click()
    context.close()
    assert text == []
    assert {url.split(":")[0] for url in asked} <= {"file", "data"}
