"""The finished explain pages of the documentation, opened from disk in a real browser."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import needs_chromium, opened_files

pytestmark = needs_chromium

SEE = Path(__file__).parents[2] / "docs" / "see"


TABS = {
    **dict.fromkeys(["music.html", "copy.html", "paper.html", "speller.html", "gpt.html"], 7),
    "rnn.html": 4,
    "vector.html": 3,
    "bert.html": 5,
    "vit.html": 5,
    "zh-en.html": 7,
    "en-zh.html": 7,
}


@pytest.mark.parametrize("name", TABS)
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
        tabs.first.wait_for()
        assert tabs.count() == TABS[name]
        for n in range(TABS[name]):
            tabs.nth(n).click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        if language == "en":
            page.get_by_role("button", name="中文").click()
    context.close()
    assert text == []
    assert {url.split(":")[0] for url in asked} <= {"file", "data"}


def test_an_image_that_is_chosen(browser: Any, tmp_path: Path) -> None:
    """As the same image among the examples, and again from its link; another file is refused."""
    pictures = re.findall(r'"png":"([^"]+)"', (SEE / "vit.html").read_text(encoding="utf-8"))
    image, other = tmp_path / "a digit.png", tmp_path / "other.png"
    image.write_bytes(base64.b64decode(pictures[3]))
    other.write_text("no image", encoding="utf-8")
    with opened_files(browser) as open_file:
        page = open_file(SEE / "vit.html", "tab=answer")
        bars = page.locator(".bars").first
        bars.wait_for()
        first = bars.inner_text()
        page.locator(".thumbnail").nth(3).click()
        expected = bars.inner_text()
        page.locator(".thumbnail").nth(0).click()
        assert bars.inner_text() == first != expected
        page.set_input_files("input[type=file]", image)
        page.wait_for_function("document.title.startsWith('a digit.png')")
        assert bars.inner_text() == expected
        page.set_input_files("input[type=file]", other)
        page.get_by_role("alert").filter(has_text="other.png").wait_for()
        assert bars.inner_text() == expected
        page.locator(".thumbnail").nth(0).click()
        assert bars.inner_text() == first
        page.set_input_files("input[type=file]", image)
        page.wait_for_function("document.title.startsWith('a digit.png')")
        page.locator(".thumbnail").nth(0).click()
        page.set_input_files("input[type=file]", image)  # the same file again
        page.wait_for_function("document.title.startsWith('a digit.png')")
        again = open_file(SEE / "vit.html", page.url.partition("#")[2])
        again.locator(".bars").first.wait_for()
        assert again.locator(".bars").first.inner_text() == expected


def test_a_page_that_cannot_begin_says_so(browser: Any, tmp_path: Path) -> None:
    whole = (SEE / "vit.html").read_text(encoding="utf-8")
    damaged = tmp_path / "damaged.html"
    damaged.write_text(re.sub(r'"png":"[^"]+"', '"png":"AAAA"', whole), encoding="utf-8")
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(damaged.as_uri())
    page.get_by_role("alert").filter(has_text="This page cannot compute").wait_for()
    assert errors
    page.close()
