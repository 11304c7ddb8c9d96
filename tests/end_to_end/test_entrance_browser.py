"""Figure 1 as the entrance: columns of tokens, every screen from its place, guided cards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import needs_chromium, opened_files
from helpers.live_page import live_html
from helpers.random_predictors import PREDICTORS, random_classifier, random_generator
from helpers.random_translator import (
    CONVOLUTION,
    MEMORY,
    RECURRENT,
    random_translator,
    untrained,
)

pytestmark = needs_chromium

SEE = Path(__file__).parents[2] / "docs" / "see"
TEXT = "w3 w1 w4 w1 w5"
WIDTHS = (1280, 390)
OpenPage = Callable[..., Any]


def recurrent(context: str) -> Any:
    return untrained(RECURRENT, {**RECURRENT, "context": {"kind": context}})


MAKERS: dict[str, tuple[Callable[[], Any], str]] = {
    "translation": (random_translator, TEXT),
    **PREDICTORS,
    "one vector": (lambda: recurrent("fixed"), TEXT),
    "recurrent attention": (lambda: recurrent("additive"), TEXT),
    "convolutions": (lambda: untrained(CONVOLUTION, {**CONVOLUTION, "max_positions": 40}), TEXT),
    "memory network": (lambda: random_generator(MEMORY), "the cat sat"),
    "recurrent labels": (
        lambda: random_classifier(("good", "bad"), encoder=RECURRENT, pooling="first"),
        "the cat sat",
    ),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A live page of each task, made when it is needed."""
    folder = tmp_path_factory.mktemp("pages")

    def page(name: str) -> Path:
        file = folder / f"{name}.html"
        if not file.exists():
            make, text = MAKERS[name]
            file.write_text(live_html(make(), text), encoding="utf-8")
        return file

    return page


@pytest.fixture
def show(browser: Any, pages: Callable[[str], Path]) -> Iterator[OpenPage]:
    with opened_files(browser) as open_file:

        def open_page(name: str = "translation", at: str = "", **settings: Any) -> Any:
            return open_file(pages(name), at, **settings)

        yield open_page


def tab(page: Any) -> str:
    chosen: str = page.evaluate("S.tab")
    return chosen


def size(width: int) -> dict[str, int]:
    return {"width": width, "height": 844}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", MAKERS)
def test_the_picture_is_the_first_screen_of_every_task(
    name: str, width: int, show: OpenPage
) -> None:
    page = show(name, viewport=size(width), color_scheme="dark" if width == 390 else "light")
    assert tab(page) == "figure"
    sides = page.evaluate("Object.keys(D.stacks)")
    for side in sides:
        tokens = page.evaluate(f"flowTokens('{side}')")
        cells = f".flowbox[data-side={side}] [data-k^=flow{side}].tokencell:not(.memory) bdi"
        assert page.locator(cells).all_inner_texts() == tokens
        fanned = page.locator(f".headnode[data-k^='fan{side}']").count()
        if page.evaluate(f"D.stacks.{side}.kind") == "transformer":
            assert fanned in {page.evaluate(f"{n} * D.stacks.{side}.n_heads") for n in (1, 2)}
        elif side == "decoder" and page.evaluate("crosses().length"):
            assert fanned == page.evaluate("crosses()[0].shape[0]")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#guide").is_visible()


@pytest.mark.parametrize(
    ("part", "expected", "point"),
    [
        ("[data-k='fanencoder.layers.0.self_attention:1']", "heads", "big"),
        ("[data-k='rowencoderembedding']", "lab", "meaning"),
        ("[data-k='flowdecodermemory2']", "steps", "attention"),
        (".guess >> nth=0", "steps", "candidates"),
        ("[data-k='rowencodertokens']", "steps", "credit"),
        ("[data-k='rowencoderselfAttentionhand']", "hand", "table"),
        ("[data-k='rowdecoderheadbeam']", "beam", None),
        ("[data-k='flowdecoderout.0']", "layers", None),
        ("[data-k='rowdecodercrossAttentionlab']", "lab", "map"),
        ("[data-k='flowencoderfeedForward.1']", "figure", "boxes"),
    ],
)
def test_a_part_opens_its_screen_and_back_returns(
    part: str, expected: str, point: str | None, show: OpenPage
) -> None:
    page = show(at="tab=figure&step=1", viewport=size(1280))
    button = page.locator(part)
    button.click()
    assert tab(page) == expected
    if point:
        target = page.locator(f"[data-point={point}]").first
        assert target.is_visible() and target.bounding_box()["y"] < 844
    if expected == "heads":
        assert "Encoder self-attention · layer 1 · head 2" in page.locator(".big").inner_text()
    if expected == "layers":
        assert page.locator(".cell[aria-pressed=true]").get_attribute("data-k") == "lens0.0"
    if expected == "figure":
        assert page.evaluate("[S.box, S.boxToken]") == ["encoder.layers.0.feed_forward", 1]
        return
    page.go_back()
    page.wait_for_function("S.tab === 'figure' && S.step === 1")
    assert page.evaluate("document.activeElement.dataset.k") == button.get_attribute("data-k")


SOURCE = "[data-k=rowencodertokens]"
QUESTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "which token decided": ((SOURCE,), "[data-point=credit] table"),
    "why this word": ((".guess >> nth=0", "[data-k=why]"), ".whys .number"),
    "what else": ((), ".guess >> nth=1"),
    "what if it were that": ((".guess >> nth=0", ".rival >> nth=2"), "button.out"),
    "does this head matter": ((".headnode >> nth=0", "[data-k=headOut]"), ".whole"),
    "without positions": (("label:has([data-k=partpositions])",), ".whole"),
    "without the scale": (("label:has([data-k=partscale])",), ".whole"),
    "q times k here": (("[data-k=rowencoderselfAttentionhand]",), "[data-point=table] table"),
    "what does layer 1 think": (("[data-k='flowdecoderout.0']",), ".cell[aria-pressed=true]"),
    "where is it kept": (("[data-k=rowencoderselfAttentionlab]",), "[data-point=map] h2"),
    "what is near it": (("[data-k='flowencoderembedding.1']",), "[data-point=meaning] .bars"),
    "what it looks at": (("[data-k=rowdecodermemory]",), "[data-point=attention] canvas"),
}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_questions_take_two_clicks(question: str, width: int, show: OpenPage) -> None:
    """From the opened page; on a phone the switches stand behind one click more."""
    clicks, answer = QUESTIONS[question]
    if width == 390 and question.startswith("without"):
        clicks = ("[data-k=changes]", *clicks)
    assert len(clicks) <= 2
    page = show(viewport=size(width))
    for part in clicks:
        page.locator(part).click()
    page.locator(answer).first.wait_for()


def test_neighbours_without_a_laboratory(browser: Any) -> None:
    with opened_files(browser) as open_file:
        page = open_file(SEE / "bert.html", "tab=figure")
        page.locator("[data-k='flowencoderembedding.1']").click()
        name = page.evaluate("flowTokens('encoder')[1]")
        chosen = page.locator(".boxpanel [data-k=token] option:checked")
        assert chosen.inner_text() == name
        assert page.locator(".boxpanel .bars .rival").count() == 8


def test_items_have_no_credit(show: OpenPage) -> None:
    page = show("items", at="tab=answer")
    assert "no credit for recommendations" in page.locator("#view").inner_text()


def test_a_layer_is_fanned_out_when_it_is_chosen(show: OpenPage) -> None:
    page = show(at="tab=figure")
    before = page.locator(".headnode").first.get_attribute("data-k")
    page.locator("[data-k=flowencoderlayer1]").click()
    after = page.locator(".headnode").first.get_attribute("data-k")
    assert (before.split(".")[2], after.split(".")[2]) == ("0", "1")
    weights = page.evaluate(
        "D.attention.find(a => a.name === 'encoder.layers.1.self_attention').weights[0][0].join()"
    )
    drawn = page.locator(".flowbox[data-side=encoder] .ray").count()
    assert drawn > sum(float(weight) >= 0.03 for weight in weights.split(","))


def test_play_moves_from_step_to_step(show: OpenPage) -> None:
    page = show(at="tab=figure")
    steps = page.evaluate("D.steps.length")
    page.locator("[data-k=play]").click()
    page.wait_for_function(f"S.step === {min(2, steps - 1)}")
    pressed = page.locator(".flowbox[data-side=decoder] .tokencell[aria-pressed=true]")
    assert pressed.count() == 2, "the token read and the token written"
    written = page.evaluate("D.steps[S.step].written")
    assert written == pressed.first.inner_text()
    later = page.locator("[data-k^=flowwritten].later").count()
    assert later == steps - 1 - page.evaluate("S.step")


def test_an_encoder_alone_is_walked_through_layer_by_layer(show: OpenPage) -> None:
    page = show("labels", at="tab=figure")
    page.evaluate("Object.assign(S, {box: 'encoder.layers.0.feed_forward_residual'})")
    page.evaluate("window.setInterval = (run) => { window.next = run; return 1; }")
    page.locator("[data-k=walk]").click()
    seen = []
    for _ in range(40):
        seen.append(page.evaluate("[S.box, S.boxLayer]"))
        page.evaluate("timer && next()")
    layers = [layer for box, layer in seen if box == "encoder.layers.0.self_attention"]
    assert layers == list(range(page.evaluate("D.stacks.encoder.n_layers")))
    assert seen[-1][0] == "head"


def test_arrow_keys_move_in_the_picture(show: OpenPage) -> None:
    page = show(at="tab=figure")
    for side in ("encoder", "decoder"):
        stops = page.locator(f".flowbox[data-side={side}] [tabindex='0']")
        assert stops.count() == 1, "one tab stop for each picture"
    page.locator("[data-k=flowencoder1]").focus()
    key = "document.activeElement.dataset.k"
    page.keyboard.press("ArrowRight")
    assert page.evaluate(key) == "flowencoder2"
    page.keyboard.press("ArrowUp")
    assert page.evaluate(key) == "flowencoderembedding.2"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate("S.column") == 2
    assert page.evaluate(key) == "flowencoder2", "focus stays after a choice"


@pytest.mark.parametrize("lang", ["en-GB", "zh-CN"])
@pytest.mark.parametrize("name", MAKERS)
def test_each_card_points_at_a_place_and_does_the_thing(
    name: str, lang: str, show: OpenPage
) -> None:
    page = show(name, locale=lang, viewport=size(390))
    count = page.evaluate("guideCards().length")
    assert 4 <= count <= 9
    for n in range(count):
        text = page.locator("#guide").inner_text()
        assert text.startswith(f"{n + 1} / {count} · ") and "guide" not in text.lower()[:40]
        assert page.locator(".pointed").count() == 1
        before = page.evaluate("JSON.stringify([S, timer > 0, document.activeElement.dataset.k])")
        page.locator("[data-k=guideGo]").click()
        after = page.evaluate("JSON.stringify([S, timer > 0, document.activeElement.dataset.k])")
        assert after != before
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator("[data-k=guideOn]").click()
    assert not page.locator("#guide").is_visible()


def test_cards_are_remembered(show: OpenPage) -> None:
    page = show()
    page.locator("[data-k=guideOn]").click()
    page.locator("[data-k=guideOn]").click()
    third = page.locator("#guide h2").inner_text()
    page.locator("[data-k=guideLeave]").click()
    page.reload()
    assert not page.locator("#guide").is_visible()
    page.get_by_role("button", name="Guide: card 3 of").click()
    assert page.locator("#guide h2").inner_text() == third
    page.reload()
    assert page.locator("#guide h2").inner_text() == third, "open where it was"


def test_no_card_stands_before_a_link_or_in_a_frame(show: OpenPage) -> None:
    for at in ("tab=steps", "embed=true", "embed=true&tab=figure"):
        assert not show(at=at).locator("#guide").is_visible()
