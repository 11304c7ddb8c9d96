"""The book in a real browser: training in the page, and live pieces set to the point."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import needs_chromium, opened_files

pytestmark = needs_chromium
DOCS = Path(__file__).parents[2] / "docs"
TRAINER = DOCS / "book" / "train.html"

OpenPage = Callable[..., Any]


@pytest.fixture
def show(browser: Any) -> Iterator[OpenPage]:
    with opened_files(browser, timeout=30_000) as open_file:
        yield open_file


def text_of(page: Any, selector: str) -> str:
    return str(page.inner_text(selector))


def train_for(page: Any, steps: int) -> float:
    """Press the button, wait for the steps, press again; the last loss that is shown."""
    page.click("#train")
    shown = "document.querySelector('#progress').textContent.match(/\\d+/)?.[0] >= "
    page.wait_for_function(shown + str(steps))
    page.click("#train")
    page.wait_for_function("!document.querySelector('#train').textContent.includes('❚❚')")
    return float(re.findall(r"[\d.]+", text_of(page, "#progress"))[-1])


def test_a_model_is_trained_before_ones_eyes(show: OpenPage) -> None:
    page = show(TRAINER, "lang=en&without=mask&line=27182")
    assert page.is_checked("input[name=scale]") and not page.is_checked("input[name=mask]")
    assert "is the loss lower or higher?" in text_of(page, "#prediction")
    assert text_of(page, "#answer") == "(not trained yet)"
    assert page.locator("#heads figure").count() == 6
    early = train_for(page, 10)
    late = train_for(page, 60)
    assert late < early - 0.5
    assert "without the decoder's mask" in text_of(page, "#runs")
    assert page.locator("#curves path").count() == 1
    page.check("input[name=mask]")
    assert "Train" in text_of(page, "#train")  # another model: a training of its own
    train_for(page, 10)
    assert page.locator("#curves path").count() == 2


def test_the_address_holds_the_state(show: OpenPage) -> None:
    page = show(TRAINER, "lang=zh")
    assert page.evaluate("document.documentElement.lang") == "zh"
    page.uncheck("input[name=positions]")
    page.fill("#line", "999")
    page.click("#language")
    assert page.evaluate("location.hash") == "#lang=en&without=positions&line=999"
    assert page.evaluate("document.documentElement.lang") == "en"


def test_it_fits_a_phone(show: OpenPage) -> None:
    page = show(TRAINER, "lang=zh", viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def live_pieces() -> list[str]:
    pages = sorted(DOCS.glob("book/[0-9]*.md"))
    pieces = {
        piece.replace("&amp;", "&")
        for page in pages
        for piece in re.findall(r'src="\.\./(see/[^"]+)"', page.read_text(encoding="utf-8"))
    }
    return sorted(piece for piece in pieces if "lang=en" in piece)


@pytest.mark.parametrize("piece", live_pieces())
def test_live_pieces_open_at_their_point(show: OpenPage, piece: str) -> None:
    file, _, at = piece.partition("#")
    page = show(DOCS / file, at, viewport={"width": 390, "height": 544})
    page.wait_for_selector("[role=tab][aria-selected=true]")
    # In a frame of a chapter the lines about the page itself are left out.
    assert page.evaluate("document.querySelector('#view').getBoundingClientRect().top") < 300
    assert page.locator("[data-k=lang], [data-k=link]").count() == 0
    tabs = page.locator("[role=tab][aria-selected=true]")
    names = {"steps": "Steps", "heads": "Heads", "hand": "By hand", "beam": "Search"}
    names |= {"figure": "Figure 1", "layers": "Layers", "beside": "Side by side"}
    (tab,) = re.findall(r"tab=(\w+)", at)
    assert names[tab] in str(tabs.first.inner_text())
