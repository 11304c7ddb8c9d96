"""The page of an explanation in a real browser, opened from disk."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import Open, needs_chromium
from helpers.command_line import transduce
from helpers.random_translator import random_translator
from transduce.explain.explanation import ComparedRun, Explanation, Film, FilmScene, SideBySide
from transduce.explain.page import page_of
from transduce.explain.parts import Attention, Pattern
from transduce.explain.tasks import explain_translation

pytestmark = needs_chromium

HOSTILE = "</script><img src=x onerror=alert(1)> שלום 👩‍👩‍👧 \u202e " + "x" * 2000
TEXTS = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "שלום עולם \u202e abc \u2067def",
    "👩‍👩‍👧‍👦 🇨🇭 e\u0301 \ufeff\u200b",
    "a\x00b\x1b[31mc\x7f\x85d",
    "x" * 2000,
    "&lt;b&gt; \\u003c ${1} `a` \u2028 ' \"",
)
TABS = ("Figure 1", "Steps", "Heads", "Search", "Layers", "By hand")


@pytest.fixture(scope="module")
def found() -> Explanation:
    return explain_translation(random_translator(), ("w3 w1 w4 w1 w5",))


@pytest.fixture(scope="module")
def three() -> list[SideBySide]:
    """A fixed context, recurrent attention and a Transformer."""
    rnn = {"kind": "recurrent"}
    made = {
        "fixed": random_translator(rnn, {**rnn, "context": {"kind": "fixed"}}, trained=False),
        "additive": random_translator(rnn, {**rnn, "context": {"kind": "additive"}}, trained=False),
        "transformer": random_translator(),
    }
    texts = ("w3 w1 w4 w1 w5", " ", "w2 w7")
    return [
        SideBySide(
            tuple(
                ComparedRun(replace(explain_translation(one, (text,)), run=name), 1000 * n, 0.5)
                for n, (name, one) in enumerate(made.items(), 1)
            )
        )
        for text in texts
    ]


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens explanations as a page; in the end its console must be empty."""
    text: list[str] = []
    asked: list[str] = []
    contexts = []

    def open_page(*shown: Explanation | SideBySide | Path, at: str = "", **settings: Any) -> Any:
        file = tmp_path / "page.html"
        parts: list[dict[str, Any]] = []
        for n, one in enumerate(shown):
            if isinstance(one, Path):
                file = one
            else:
                parts += one.packed(n) if isinstance(one, SideBySide) else [one.packed()]
        if parts:
            file.write_text(page_of(parts), encoding="utf-8")
        context = browser.new_context(**{"locale": "en-GB", **settings})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: text.append(message.text))
        page.on("pageerror", lambda error: text.append(str(error)))
        page.on("dialog", lambda dialog: text.append("a dialog"))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{file.as_uri()}#{at}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert text == []
    assert {url.split(":")[0] for url in asked} <= {"file", "data"}


def rows_of(page: Any) -> list[list[str]]:
    """The table of the work by hand, without its last row."""
    cells = "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    found: list[list[str]] = page.eval_on_selector_all("tbody tr", cells)
    return found[:-1]


def test_every_screen_opens(show: Open, found: Explanation) -> None:
    page = show(found)
    tabs = page.get_by_role("tab")
    assert [name[2:] for name in tabs.all_text_contents()] == list(TABS)
    for number in range(len(TABS)):
        tabs.nth(number).click()
        assert page.get_by_role("tabpanel").inner_text().strip()
    assert page.locator("h1").inner_text().startswith("w3 w1 w4 w1 w5")


@pytest.mark.parametrize(
    "settings", [{"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 740}}]
)
def test_nothing_is_wider_than_the_screen(
    show: Open, found: Explanation, settings: dict[str, Any]
) -> None:
    page = show(found, **settings)
    for tab in page.get_by_role("tab").all():
        tab.click()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == ("color_scheme" in settings)


def test_keys_walk_tabs_steps_and_cells(show: Open, found: Explanation) -> None:
    page = show(found, at="tab=steps")
    page.keyboard.press("ArrowRight")
    assert "Step 2 of" in page.inner_text("main")
    page.get_by_role("tab").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", selected=True).inner_text() == "2 Steps"
    page.locator(".heat canvas").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("status").inner_text().count("→") == 1


def test_a_slider_stays_while_it_is_drawn(show: Open, found: Explanation) -> None:
    page = show(found)
    slider = page.get_by_role("slider", name="Step")
    box = slider.bounding_box()
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    observed = set()
    for share in (0.3, 0.6, 0.95):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2, steps=4)
        observed.add(page.get_by_text(re.compile(r"^Step \d+ of")).inner_text())
    page.mouse.up()
    assert len(observed) == 3


def test_both_languages(show: Open, found: Explanation) -> None:
    page = show(found, locale="zh-CN")
    assert page.get_by_role("tab").first.inner_text() == "1 图 1"
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    page.get_by_role("button", name="English").click()
    assert page.get_by_role("tab").first.inner_text() == "1 Figure 1"


def test_numbers_by_hand_follow_the_model_and_the_hand(show: Open, found: Explanation) -> None:
    page = show(found, at="tab=hand")
    for row in rows_of(page):
        assert float(row[-2]) == pytest.approx(float(row[-1]), abs=0.011)
    page.get_by_label("sigmoid for softmax").check()
    assert "Σ α = 1.00" not in page.inner_text("table")
    page.get_by_label("sigmoid for softmax").uncheck()
    before = rows_of(page)
    value = page.locator(".vector input").first
    value.fill("9")
    value.blur()
    assert rows_of(page) != before
    page.get_by_role("button", name="Undo all changes").click()
    assert rows_of(page) == before


def test_a_hidden_future_comes_back_without_the_mask(show: Open, found: Explanation) -> None:
    number = next(i for i, h in enumerate(found.by_hand) if found.attention[h.attention].causal)
    page = show(found, at=f"tab=hand&hand={number}&asks=0")
    assert [row[-2] for row in rows_of(page)[1:]] == ["0.000"] * (len(rows_of(page)) - 1)
    page.get_by_label("without the mask").check()
    assert any(float(row[-2]) > 0.01 for row in rows_of(page)[1:])


@pytest.mark.parametrize(("order", "norms"), [("pre", 2), ("post", 0)])
def test_figure_1_ends_pre_norm_stacks_in_a_norm(show: Open, order: str, norms: int) -> None:
    stack = {"norm_order": order}
    made = explain_translation(random_translator(stack, stack, trained=False), ("w3 w1",))
    page = show(made, at="tab=figure")
    rows = page.locator(".flow .label").all_inner_texts()
    assert sum(row.split("\n")[0].split(" (")[0] == "Norm" for row in rows) == norms
    frame, memory = page.locator(".flow .frame").first, page.get_by_text("memory (1, 3, 16)")
    assert memory.bounding_box()["y"] < frame.bounding_box()["y"] + 30


def test_text_of_strangers_is_shown_and_not_obeyed(show: Open, found: Explanation) -> None:
    tokens = {**found.sequences, "source": [HOSTILE, *found.sequences["source"][1:]]}
    page = show(
        replace(found, inputs={"source": HOSTILE}, answer="a\x00b", sequences=tokens), found
    )
    assert HOSTILE in page.text_content("h1") and "a␀b" in page.text_content("h1")
    assert page.locator("img").count() == 0
    for tab in page.get_by_role("tab").all():
        tab.click()
    page.get_by_label("Text").select_option("1")
    assert page.text_content("h1").startswith("w3 w1")


def test_runs_side_by_side(show: Open, three: list[SideBySide]) -> None:
    page = show(three[0])
    assert page.get_by_role("tab", selected=True).inner_text() == "1 Side by side"
    assert page.locator("h1").inner_text() == "w3 w1 w4 w1 w5"
    assert page.locator("thead th").all_inner_texts() == ["Run", "fixed", "additive", "transformer"]
    rows = [row.split("\t") for row in page.locator("tbody tr").all_inner_texts()]
    figures = {name: row for name, *row in rows}
    losses = [one.log_prob for one in three[0].runs if one.log_prob is not None]
    assert figures["log p"] == [f"{loss:.3f}".replace("-", "−") for loss in losses]
    assert figures["parameters"] == [f"{one.parameters:,}" for one in three[0].runs]
    sections = page.locator("section")
    assert sections.count() == 3
    assert "no choice of position" in sections.nth(0).inner_text()
    assert "mean of 2 heads" in sections.nth(2).inner_text()
    maps = page.locator("section .heat canvas")
    sizes = [tuple(maps.nth(i).evaluate("c => [c.height, c.width]")) for i in range(3)]
    steps = [len(run.explanation.steps) for run in three[0].runs]
    assert sizes == [(1, 6), (steps[1], 6), (steps[2], 6)]


def test_a_token_shows_the_same_step_of_every_run(show: Open, three: list[SideBySide]) -> None:
    page = show(three[0])
    page.locator("section").nth(2).locator(".tokens button").nth(1).click()
    heads = page.locator("section h3", has_text="Step 2").all_inner_texts()
    written = [run.explanation.steps[1].written for run in three[0].runs]
    assert heads == [f"Step 2 writes “\u2068{token}\u2069”" for token in written]
    map_ = page.locator("section").nth(0).locator(".heat canvas")
    map_.focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("status").inner_text().endswith("0.17")


def test_all_screens_of_each_run(show: Open, three: list[SideBySide]) -> None:
    page = show(*three)
    page.get_by_role("button", name="All screens of additive").click()
    assert page.get_by_role("tab", selected=True).inner_text() == "2 Figure 1"
    assert "run additive" in page.inner_text("header")
    page.get_by_label("Run").select_option(label="3  transformer")
    assert page.get_by_role("tab").all_inner_texts()[-2:] == ["6 Layers", "7 By hand"]
    page.get_by_label("Text").select_option(index=2)
    assert "run transformer" in page.inner_text("header")
    assert page.locator("h1").inner_text().startswith("w2 w7")
    page.get_by_label("Text").select_option(index=1)
    assert page.locator("section").count() == 3, "a blank text"
    assert page.locator("tbody th").all_inner_texts() == ["Answer", "parameters", "seconds"]
    assert page.get_by_role("tab").count() == 1


@pytest.mark.parametrize(
    "settings",
    [{"color_scheme": "dark", "locale": "zh-CN"}, {"viewport": {"width": 320, "height": 740}}],
)
def test_side_by_side_fits_the_screen(
    show: Open, three: list[SideBySide], settings: dict[str, Any]
) -> None:
    one = three[0].runs[0]
    long = replace(one, explanation=replace(one.explanation, run="/home/runs/" + "fixed" * 20))
    page = show(SideBySide((long, *three[0].runs)), **settings)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    zh = settings.get("locale") == "zh-CN"
    assert page.get_by_role("tab").first.inner_text() == ("1 并排" if zh else "1 Side by side")


def test_two_runs_stand_side_by_side_on_a_phone(show: Open, three: list[SideBySide]) -> None:
    page = show(SideBySide(three[0].runs[1:]), viewport={"width": 390, "height": 740})
    scrolled = page.locator(".scroll").evaluate_all(
        "all => all.map(x => x.scrollWidth - x.clientWidth)"
    )
    assert len(scrolled) >= 1 and max(scrolled) == 0


CONTROLS = {n: 0x2400 + n for n in range(32)} | dict.fromkeys(range(128, 160), 65533)


@pytest.mark.slow
def test_any_text_through_the_command(show: Open, run: Path, twin: Path, tmp_path: Path) -> None:
    file = tmp_path / "any.html"
    given = "\n".join(TEXTS).encode() + b"\n\xff\xfe\n"
    done = transduce("explain", run, "--against", twin, "--html", file, stdin=given)
    assert done.code == 0, done.err
    page = show(file)
    chosen = page.get_by_label("Text")
    assert chosen.locator("option").count() == len(TEXTS) + 1
    for number, text in enumerate(TEXTS):
        chosen.select_option(index=number)
        assert page.text_content("h1 bdi") == text.translate({**CONTROLS, 0x7F: 0x2421})
        for name in ("1  copy", "2  twin"):
            page.get_by_label("Run").select_option(label=name)
            for tab in page.get_by_role("tab").all():
                tab.click()
                for width in (1280, 340):
                    page.set_viewport_size({"width": width, "height": 800})
                    over = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                    assert over <= 0, (text[:20], name, tab.inner_text())
    assert page.locator("img").count() == 0 and page.locator("script").count() == 2


@pytest.fixture(scope="module")
def filmed(found: Explanation) -> Explanation:
    """An explanation with a film: heads that turn from even to sharp in four points."""

    def at(point: int) -> tuple[Attention, ...]:
        share = point / 3
        sharp = [
            replace(one, weights=(1 - share) / one.weights.shape[2] + share * one.weights)
            for one in found.attention
        ]
        return tuple(replace(one, patterns=(Pattern("mixed", share),) * 2) for one in sharp)

    scene = FilmScene(TEXTS[0], found.sequences, tuple(map(at, range(4))))
    points = ((0, 0.0), (1, 0.01), (9, 0.1), (90, 1.0))
    return replace(found, run="filmed", film=Film(points, (scene, scene)))


@pytest.mark.slow
def test_the_film_of_learning(show: Open, filmed: Explanation, found: Explanation) -> None:
    page = show(filmed, filmed, found, at="tab=heads")
    choose = page.get_by_label("Heads of")
    assert "after training" in choose.locator("option:checked").inner_text()
    assert page.get_by_role("slider").count() == 0
    choose.select_option("1")
    slider = page.get_by_label("Point of training")
    caption = page.locator(".thumb span").first
    assert slider.get_attribute("aria-valuetext") == (
        "Point 4 of 4: after 90 steps, 100 % of the budget"
    )
    assert caption.inner_text() == "mixed 1.00"
    slider.focus()
    page.keyboard.press("Home")
    assert "after 0 steps, 0 % of the budget" in slider.get_attribute("aria-valuetext")
    assert caption.inner_text() == "mixed 0.00"
    page.keyboard.press("ArrowRight")
    assert "Point 2 of 4: after 1 steps, 1 %" in page.locator("main").inner_text()
    assert caption.inner_text() == "mixed 0.33"
    assert page.evaluate("document.activeElement.dataset.k") == "at"
    page.locator("[data-k=which]").select_option("1")  # the same run: its film is on
    assert page.get_by_label("Point of training").count() == 1
    page.locator("[data-k=which]").select_option("2")
    assert page.get_by_label("Point of training").count() == 0


@pytest.mark.slow
def test_the_film_plays_to_its_end_and_says_where_it_is(show: Open, filmed: Explanation) -> None:
    page = show(filmed, at="tab=heads", locale="zh-CN")
    play = page.get_by_role("button", name="播放: 学习过程")
    play.focus()
    page.keyboard.press("Enter")
    page.wait_for_function("document.getElementById('said').textContent.startsWith('第 4 点')")
    page.wait_for_selector("button[aria-label='播放: 学习过程']")
    assert page.evaluate("document.activeElement.dataset.k") == "roll"
    page.locator("[role=tab][aria-selected=false]").first.click()
    assert page.locator("#said").inner_text() == ""
    page.locator("[data-k=tabheads]").click()
    page.get_by_role("button", name="播放: 学习过程").click()  # again, from the first point
    page.get_by_role("button", name="暂停: 学习过程").click()
    assert page.get_by_role("slider").input_value() == "0"


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 740}}]
)
def test_the_film_fits_the_screen(
    show: Open, filmed: Explanation, settings: dict[str, Any]
) -> None:
    page = show(filmed, at="tab=heads&film=0&at=2", **settings)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
