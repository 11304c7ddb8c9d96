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
    with opened_files(browser, timeout=120_000) as open_file:
        yield open_file


def text_of(page: Any, selector: str) -> str:
    return str(page.inner_text(selector))


def side_of(page: Any) -> Any:
    """The first of the two models."""
    page.locator("#sides > section").first.wait_for()
    return page.locator("#sides > section").first


def test_a_model_is_trained_before_ones_eyes(show: OpenPage) -> None:
    page = show(TRAINER, "lang=en&without=mask&line=27182&a=steps:50,without:mask")
    side = side_of(page)
    assert side.locator("[name=scale]").is_checked()
    assert not side.locator("[name=mask]").is_checked()
    assert "is the loss lower or higher?" in side.inner_text()
    side.locator("button.first").click()
    side.locator(".runs td:last-child:text-matches('%')").wait_for()
    assert "without the decoder's mask" in side.locator(".runs").inner_text()
    assert side.locator(".maps figure").count() == 6
    side.locator("[name=mask]").check()
    assert "Train" in side.locator("button.first").inner_text()  # a training of its own
    side.locator("button.first").click()
    side.locator(".curve path").nth(1).wait_for(state="attached")
    assert side.locator(".runs tbody tr").count() == 2


def test_the_address_holds_the_state(show: OpenPage) -> None:
    page = show(TRAINER, "lang=zh&tab=dials&without=positions")
    assert page.evaluate("document.documentElement.lang") == "zh"
    side = side_of(page)
    assert not side.locator("[name=positions]").is_checked()
    page.fill("#line", "999")
    side.locator("[name=mask]").uncheck()
    page.click("#language")
    state = page.evaluate("decodeURIComponent(location.hash)")
    assert state == "#lang=en&tab=dials&line=999&a=without:positions+mask"
    assert page.evaluate("document.documentElement.lang") == "en"


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


def chapter_page(directory: Path, body: str, language: str = "en") -> Path:
    """A page of the site without its theme: a body, and the scripts of the book."""
    book = DOCS / "book"
    scripts = "".join(
        f'<script src="{(book / f"{name}.js").as_uri()}"></script>'
        for name in ("numbers", "book", "widgets")
    )
    style = f'<link rel="stylesheet" href="{(book / "book.css").as_uri()}">'
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">{style}'
    path = directory / "page.html"
    path.write_text(
        f'<!doctype html><html lang="{language}"><head>{head}</head><body>{body}{scripts}</body>',
        encoding="utf-8",
    )
    return path


WIDGETS = [
    ("tokens", ["机器abc", "机器 ab"], ["256", "257", "99", "3 tokens, 1 of them bytes"]),
    ("vectors", ["3 4", "-3 -4"], ["|a| = 5", "a + b = (0, 0)", "10"]),
    ("products", ["1 2 3 4", "0.5 -1 2 1"], ["= 8.5", "4.25"]),
    ("products", ["1 2", "1 2 3"], ["now 2 and 3"]),
    ("weights", ["2 0", "2"], ["0.7311", "0.2689", "Sum of the weights 1"]),
    ("weights", ["1 x", "1"], ["Numbers please"]),
    ("weights", ["1 2", "0"], ["above 0"]),
    ("weights", ["1000 0 -1000"], ["e^1000", "1.0000", "Sum of the weights 1"]),
    ("weights", ["1e308 0"], ["up to a million"]),
    ("vectors", ["300 400", "-1 2"], ["|a| = 500", "a + b = (299, 402)"]),
    ("losses", ["0.9 0.9 0.1"], ["0.8378", "2.3112", "0.0810"]),
    ("losses", ["0.5 0"], ["infinite"]),
    ("losses", [], ["0.2499", "Probability of the whole sentence (their product) 0.174"]),
    (
        "beam",
        ["0.6 0.4 0"],
        ["B </s>", "0.4 × 0.9 = 0.36", "finished", "−1.0217", "Answer: B </s>"],
    ),
    ("beam", ["0.6 0.4 0", "0.3 0.3 0.4", "0.3 0.3 0.4"], ["Answer: A </s>, probability 0.24"]),
    ("beam", ["0.5 0.5 0.5"], ["the sum 1"]),
    ("beam", ["1 0 0", "1 0 0", "0 1 0", "3"], ["No sentence is finished within 6 steps"]),
    ("beam", ["1 0 0", "1 0 0", "0 1 0", "2.5"], ["whole number"]),
    ("beam", ["0.61 0.39 0", "0.33 0.33 0.34", "0.05 0.05 0.9", "8"], ["0.2013 × 0.9 = 0.1812"]),
    ("cost", ["512", "512"], ["512²·512 = 134,217,728", "512·512² = 134,217,728", "4,194,304"]),
    ("cost", ["7", "128", "3"], ["= 6,272", "= 114,688", "7/3"]),
    ("cost", ["7.5"], ["Whole numbers"]),
    ("cost", ["1,000"], ["Whole numbers"]),
    ("cost", ["2048", "12288"], ["= 309,237,645,312"]),
    ("descent", ["0", "2 6", "0.3"], ["Gradient = 2·x·(x·w − y) = −24", "= 7.2"]),
    ("descent", ["0", "2 6", "0,3"], ["Numbers please"]),
    ("descent", ["0", "0 6"], ["too near 0"]),
]


@pytest.mark.parametrize(("name", "values", "expected"), WIDGETS)
def test_pieces_answer_for_typed_values(
    show: OpenPage, tmp_path: Path, name: str, values: list[str], expected: list[str]
) -> None:
    body = f'<div class="widget" data-widget="{name}"></div>'
    page = show(chapter_page(tmp_path, body), viewport={"width": 390, "height": 800})
    fields = page.locator(".widget input")
    assert fields.count() >= len(values)
    for i, value in enumerate(values):
        fields.nth(i).fill(value)
    shown = text_of(page, ".widget output")
    assert [part for part in expected if part not in shown] == []
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate(OVERWIDE) == []


OVERWIDE = """
[...document.querySelectorAll(".widget, .widget :not(input, svg, svg *)")]
  .filter((part) => part.clientWidth && part.scrollWidth > part.clientWidth + 1)
  .map((part) => part.outerHTML.slice(0, 80))
"""
OUTSIDE = """
[...document.querySelectorAll(".widget circle")].filter((point) => {
  const [at, all] = [point, point.ownerSVGElement].map((part) => part.getBoundingClientRect());
  return at.left < all.left || at.right > all.right || at.top < all.top || at.bottom > all.bottom;
}).length
"""


@pytest.mark.parametrize("typed", ["3 1", "-7 2", "30 40", "1e6 -1e6"])
def test_the_plane_holds_its_arrows(show: OpenPage, tmp_path: Path, typed: str) -> None:
    page = show(chapter_page(tmp_path, '<div class="widget" data-widget="vectors"></div>'))
    page.locator(".widget input").first.fill(typed)
    assert page.locator(".widget circle").count() == 3
    assert page.evaluate(OUTSIDE) == 0


@pytest.mark.parametrize("rate", ["0.1", "0.3", "1e6"])
def test_the_curve_holds_every_step(show: OpenPage, tmp_path: Path, rate: str) -> None:
    page = show(chapter_page(tmp_path, '<div class="widget" data-widget="descent"></div>'))
    page.locator(".widget input").last.fill(rate)
    for _ in range(60):
        page.get_by_role("button", name="One step").press("Enter")
    assert page.evaluate(OUTSIDE) == 0
    shown = text_of(page, ".widget output")
    assert "NaN" not in shown and "Infinity" not in shown
    assert ("too high" in shown) == (rate != "0.1")


def test_a_bar_over_the_top_hides_no_focused_part(show: OpenPage, tmp_path: Path) -> None:
    """Back through a page by Shift and Tab, below what the theme fixes at the top of phones."""
    bar = '<header style="position: sticky; top: 0; height: 60px; background: white">bar</header>'
    parts = '<details><summary>Answer</summary></details><p style="height: 300px"></p>' * 8
    body = f"<style>:root {{ --header-height: 60px }}</style>{bar}<article>{parts}</article>"
    page = show(chapter_page(tmp_path, body), viewport={"width": 390, "height": 700})
    page.locator("summary").last.focus()
    for _ in range(6):
        page.keyboard.press("Shift+Tab")
        assert page.locator(":focus").bounding_box()["y"] >= 60 + 48


def test_a_focused_link_of_a_wide_table_is_seen(show: OpenPage, tmp_path: Path) -> None:
    """Its beginning alone is in sight, until it is focused."""
    row = '<td style="min-width: 360px">text</td><td><a href="#a">recommendation</a></td>'
    body = f'<article><div style="overflow-x: auto"><table><tr>{row}</tr></table></div></article>'
    page = show(chapter_page(tmp_path, body), viewport={"width": 390, "height": 600})
    assert page.locator("a").bounding_box()["x"] < 385
    page.keyboard.press("Tab")
    box = page.locator("a:focus").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_descent_walks_by_keyboard(show: OpenPage, tmp_path: Path) -> None:
    page = show(chapter_page(tmp_path, '<div class="widget" data-widget="descent"></div>'))
    page.locator(".widget input").last.press("Tab")
    for _ in range(2):
        page.keyboard.press("Enter")
    assert "Step 2, w = 2.88" in text_of(page, "output")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert "Step 0, w = 0" in text_of(page, "output")


def test_a_guess_is_checked_and_opens_the_answer(show: OpenPage, tmp_path: Path) -> None:
    body = '<details data-answer="0.4223 0.1554 0.4223"><summary>Answer</summary>text</details>'
    page = show(chapter_page(tmp_path, body))
    page.get_by_role("button", name="Check").click()
    assert "Write one first" in text_of(page, ".guess")
    assert page.locator("details").get_attribute("open") is None
    page.get_by_label("Your guess").fill("0.5 0 0.5")
    page.keyboard.press("Enter")
    assert "✗" in text_of(page, ".guess") and page.inner_text("details").endswith("text")
    page.get_by_label("Your guess").fill("0.42 0.155 0.42")
    page.keyboard.press("Enter")
    assert "✓" in text_of(page, ".guess")


def test_words_explain_themselves_beside_them(show: OpenPage, tmp_path: Path) -> None:
    word = '<button type="button" class="term" popovertarget="term-1">token</button>'
    explanation = '<div class="explanation" popover id="term-1"><b>token</b> a piece</div>'
    filler = '<p style="height: 900px">'
    body = f'{filler}</p><p style="text-align: right">{word}</p>{explanation}'
    page = show(chapter_page(tmp_path, body), viewport={"width": 390, "height": 600})
    page.focus(".term")
    page.keyboard.press("Enter")
    box = page.locator(".explanation").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390 and 0 <= box["y"] <= 600
    near = page.locator(".term").bounding_box()
    assert (
        min(abs(box["y"] - near["y"] - near["height"]), abs(near["y"] - box["y"] - box["height"]))
        < 12
    )
    page.keyboard.press("Escape")
    assert not page.locator(".explanation").is_visible()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_sentence_of_the_front_page_lives(
    show: OpenPage, tmp_path: Path, language: str
) -> None:
    sentences = (DOCS / "book" / "sentences.json").read_text(encoding="utf-8")
    facts = f'"page": "{(DOCS / "see/paper.html").as_uri()}", "size": "3.3 MB"'
    content = f'{{"sentences": {sentences}, {facts}}}'
    body = f'<div class="sentence"><script type="application/json">{content}</script></div>'
    file = chapter_page(tmp_path, body, language)
    settings = {"viewport": {"width": 390, "height": 800}, "reduced_motion": "reduce"}
    page = show(file, **settings)
    page.get_by_role("button", name="▁student").focus()
    assert "学" in text_of(page, ".note") and "0.61" in text_of(page, ".note")
    page.get_by_role("button", name="我爱你").click()
    page.get_by_role("button", name="▁love").click()
    assert "爱" in text_of(page, ".note")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.locator("iframe").count() == 0  # the model is read on demand
    button = page.locator(".sentence > button")
    assert "3.3 MB" in button.inner_text()
    button.click()
    page.frame_locator("iframe").locator("[role=tab]").first.wait_for()


@pytest.mark.parametrize(("width", "language"), [(1280, "zh"), (390, "en")])
def test_slides_go_by_arrows_and_fit(show: OpenPage, width: int, language: str) -> None:
    viewport = {"width": width, "height": 700}
    page = show(DOCS / "book" / "slides.html", f"plan=2&slide=3&lang={language}", viewport=viewport)
    assert text_of(page, "#count") == "3 / 10"
    assert not page.locator("section.now .answer").first.is_visible()
    page.keyboard.press("ArrowRight")
    assert page.locator(f"section.now .answer[lang={language}]").is_visible()
    page.keyboard.press("ArrowRight")
    assert text_of(page, "#count") == "4 / 10" and "slide=4" in page.url
    page.get_by_role("button", name="45′").click()
    box = page.locator("main").bounding_box()
    assert abs(box["width"] / box["height"] - 16 / 9) < 0.01 and box["width"] <= width
    for plan in range(3):
        page.get_by_role("button", name=("45′", "2½ h", "6 w")[plan]).click()
        over = page.evaluate(OVERFULL)
        assert over == []
    page.keyboard.press("End")
    assert text_of(page, "#count") == "8 / 8"


OVERFULL = """
[...slides()].flatMap((_, i) => {
  state.slide = i + 1;
  show();
  const one = document.querySelector("section.now");
  return one.scrollHeight > one.clientHeight || one.scrollWidth > one.clientWidth ? [i + 1] : [];
})
"""
