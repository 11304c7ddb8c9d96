"""An exported page in a real browser: from disk, without a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.browser import needs_chromium
from helpers.web import COMPILING, needs_wasm
from transduce.runs.exporting import export_run

pytestmark = [needs_chromium, needs_wasm, pytest.mark.timeout(COMPILING)]

RUN = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"
TEXT = "a good hat"


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page offline; its console must stay empty, and nothing but the file be read."""
    complaints: list[str] = []
    fetched: list[str] = []
    contexts = []
    file = export_run(RUN, tmp_path / "page.html", "float32", "html")

    def open_page(**settings: Any) -> Any:
        context = browser.new_context(**{"locale": "en-GB", "offline": True, **settings})
        contexts.append(context)
        context.set_default_timeout(8000)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert set(fetched) == {file.as_uri()}


def typed(page: Any, text: str) -> None:
    page.locator("#typed").fill(text)
    page.locator(".token").first.wait_for()


def test_it_translates_as_one_types(show: Callable[..., Any]) -> None:
    page = show()
    right = transduce.load(RUN, "cpu")(TEXT)
    typed(page, TEXT)
    assert page.locator("#written").inner_text() == right.text
    answer = page.evaluate("text => transduce.translate(text)", TEXT)
    assert answer["text"] == right.text
    assert answer["score"] == pytest.approx(right.score, abs=1e-4)
    assert page.locator("tbody tr").count() == right_beam()
    assert page.locator("tbody td").first.inner_text() == right.text
    assert "float32" in page.locator("#weight").inner_text()
    page.locator("#typed").fill("")
    page.locator("#attended").wait_for(state="hidden")
    assert page.locator("#written").inner_text() == ""


def right_beam() -> int:
    return min(5, transduce.load(RUN, "cpu").translator.options.beam_size)


def test_a_word_shows_where_the_model_looked(show: Callable[..., Any]) -> None:
    page = show()
    typed(page, TEXT)
    rows = page.locator(".pair > div")
    word = rows.last.locator(".token").first
    word.click()
    assert word.get_attribute("aria-pressed") == "true"
    shades = [
        button.evaluate("button => Number(button.style.background.match(/,\\s*([\\d.]+)\\)/)[1])")
        for button in rows.first.locator(".token").all()
    ]
    assert 0 < sum(shades) <= 0.76
    word.click()
    assert word.get_attribute("aria-pressed") == "false"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen_in_both_languages(
    show: Callable[..., Any], width: int, scheme: str
) -> None:
    page = show(viewport={"width": width, "height": 900}, color_scheme=scheme, locale="zh-CN")
    typed(page, " ".join([TEXT] * 12))
    assert "不需要网络" in page.locator("label").inner_text()
    assert not page.evaluate("() => document.documentElement.scrollWidth > innerWidth")
    page.get_by_role("button", name="English").click()
    assert "without a network" in page.locator("label").inner_text()
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
