"""A page that computes, in a real browser: typed texts, rivals, and parts of the model left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.browser import needs_chromium, opened_files
from helpers.live_page import differences, explained, live_html, live_of
from helpers.random_predictors import (
    PREDICTORS,
    random_classifier,
    random_dialogue,
    random_embedder,
)
from helpers.random_translator import random_translator
from transduce.explain.knock_out import explain_without, knock_out
from transduce.explain.page import page_of
from transduce.explain.parts import KnockOut
from transduce.explain.tasks import explain_translation
from transduce.sequence import Padded
from transduce.text import BOS, EOS, SymbolsConfig

pytestmark = needs_chromium

TEXT = "w3 w1 w4 w1 w5"
TRANSLATOR = random_translator()
HEAD = "encoder.layers.0.self_attention:2"

OpenPage = Callable[..., Any]


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[OpenPage]:
    """Opens a live page from disk; its console must stay empty, and nothing be fetched."""
    file = tmp_path / "live.html"
    whole = live_html(TRANSLATOR, TEXT, "w2")
    with opened_files(browser) as open_file:

        def open_page(at: str = "", content: str = whole, **settings: Any) -> Any:
            file.write_text(content, encoding="utf-8")
            return open_file(file, at, **settings)

        yield open_page


def answer(page: Any) -> str:
    text: str = page.locator("h1 bdi").inner_text()
    return text


def expect(page: Any, text: str) -> None:
    page.wait_for_function(
        "text => document.querySelector('h1 bdi')?.textContent === text", arg=text
    )


def test_numbers_of_a_typed_text_are_those_of_python(show: OpenPage) -> None:
    page = show("tab=steps")
    text = "w9 w8 w7 w1"
    python = explain_translation(TRANSLATOR, (text,))
    page.get_by_label("Type a text").fill(text)
    expect(page, python.answer)
    assert (
        differences(replace(python, run="run"), page.evaluate(f"transduce.explain('{text}')")) == []
    )
    probability = f"{python.steps[0].probability:.3f}"
    assert page.locator(".bars .number.said").first.inner_text() == probability
    assert page.evaluate("document.activeElement.className") == "typed", "typing goes on"


def test_a_rival_is_followed_and_undone(show: OpenPage) -> None:
    page = show("tab=steps")
    whole = answer(page)
    rival = page.locator(".rival").nth(3)
    token = rival.inner_text()
    rival.click()
    page.wait_for_selector("button.out")
    assert answer(page).split()[0] == token != whole.split()[0]
    assert whole in page.locator(".whole").inner_text()
    page.get_by_role("button", name="Undo").click()
    expect(page, whole)


def test_a_head_and_a_token_left_out(show: OpenPage) -> None:
    page = show("tab=heads&att=0&head=1")
    what = KnockOut((HEAD,), (2,))
    expected = explain_without(explain_translation, TRANSLATOR, (TEXT,), what)
    page.get_by_role("button", name="Leave this head out").click()
    page.get_by_role("tab", name="Steps").click()
    page.get_by_role("button", name=re.compile(r"^w1\b")).first.click()
    expect(page, expected.answer)
    shown = page.evaluate(
        "changes => transduce.explain(live.texts(), {changes})",
        {"heads": [HEAD], "tokens": [2]},
    )
    without = {"by_hand": [], "layers": []}  # two tokens that are never written tie there
    assert differences(replace(expected, run="run", layers=()), {**shown, **without}) == []
    page.get_by_role("button", name="Restore all").click()
    expect(page, explain_translation(TRANSLATOR, (TEXT,)).answer)


def test_a_layer_left_out_keeps_its_row(show: OpenPage) -> None:
    page = show("tab=heads")
    tops = "rows => rows.map(row => Math.round(row.getBoundingClientRect().height))"
    heights = page.locator(".layer").evaluate_all(tops)
    page.get_by_title("Leave layer 1 out").last.click()
    assert page.locator(".layer").evaluate_all(tops) == heights
    assert page.locator(".thumb.empty").count() == 2 * TRANSLATOR.recipe.model.decoder.n_heads
    page.get_by_title("Put layer 1 back").last.click()
    assert page.locator(".thumb.empty").count() == 0


def test_a_link_restores_the_view(show: OpenPage) -> None:
    page = show("tab=steps&lang=zh")
    page.get_by_label("输入文本").fill("w4 w4 w2")
    page.get_by_label("位置编码").uncheck()
    page.locator("button.whole, [data-k=whole]").click()
    page.wait_for_function("location.hash.includes('whole=true')")
    table = page.locator("table").inner_text()
    again = show(page.evaluate("location.hash.slice(1)"))
    assert again.locator("table").inner_text().split("\t")[:6] == table.split("\t")[:6]
    assert not again.get_by_label("位置编码").is_checked()


def test_two_texts_beside_each_other(show: OpenPage) -> None:
    page = show()
    page.get_by_role("button", name="Compare a second text").click()
    page.get_by_label("A second text, side by side").fill("w1 w4")
    page.wait_for_selector(".runs")
    answers = page.locator("table td.said").all_inner_texts()
    assert answers == [explain_translation(TRANSLATOR, (text,)).answer for text in (TEXT, "w1 w4")]


def test_every_switch_changes_numbers_and_every_screen_opens(show: OpenPage) -> None:
    page = show("tab=steps")
    before = page.locator(".bars").first.inner_text()
    for name in ("÷ √d", "positions", "residual", "LayerNorm", "softmax", "mask"):
        page.get_by_label(name).first.uncheck()
        if name != "mask":
            assert page.locator(".bars").first.inner_text() != before
        for tab in page.get_by_role("tab").all():
            tab.click()
            assert page.get_by_role("tabpanel").inner_text().strip()
        page.get_by_role("tab", name="Steps").click()
        page.get_by_role("button", name="Restore all").click()


@pytest.mark.parametrize(
    "settings", [{"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 800}}]
)
def test_nothing_is_wider_than_the_screen(show: OpenPage, settings: dict[str, Any]) -> None:
    page = show("tab=steps&second=w2&parts=scale", **settings)
    tabs = page.get_by_role("tab").all()
    assert len(tabs) > 3
    for tab in tabs:
        tab.click()
        wide = "document.documentElement.scrollWidth > innerWidth"
        assert not page.evaluate(wide)


def test_tokens_unknown_to_the_model_are_named(show: OpenPage) -> None:
    page = show(locale="zh-CN")
    note = page.locator("#bar").get_by_role("status")
    assert note.count() == 0
    page.locator(".typed").first.fill("w1 new w2 odd new")
    assert note.inner_text().replace("\u2068", "").replace("\u2069", "") == "模型不认识：new odd"
    page.get_by_role("button", name="English").click()
    assert "Unknown to the model: " in note.inner_text()
    page.locator(".typed").first.fill("w1 w2")
    note.wait_for(state="detached")


def test_a_text_that_is_too_long_is_refused(show: OpenPage) -> None:
    page = show()
    whole = answer(page)
    page.get_by_label("Type a text").fill(" ".join(["w1"] * 40))
    assert "at most" in page.get_by_role("alert").inner_text()
    assert answer(page) == whole


def test_a_box_of_figure_1_opens_its_vectors(show: OpenPage) -> None:
    page = show("tab=figure")
    page.get_by_role("button", name="Feed-forward", exact=True).last.click()
    page.get_by_label("layer", exact=True).select_option("1")
    panel = page.get_by_label("Vectors of the box")
    numbers = [
        float(number.replace("−", "-")) for number in panel.locator(".numbers").inner_text().split()
    ]
    outputs: list[torch.Tensor] = []
    module = TRANSLATOR.model.get_submodule("decoder.layers.1.feed_forward")
    hook = module.register_forward_hook(lambda module, args, output: outputs.append(output))
    explain_translation(TRANSLATOR, (TEXT,))
    hook.remove()
    longest = max(output.numel() for output in outputs)
    whole = next(
        output for output in outputs if output.numel() == longest
    )  # then one without positions
    assert numbers == pytest.approx(whole.reshape(-1, 16)[0].tolist(), abs=0.006)
    page.get_by_role("button", name="Walk through").click()
    page.wait_for_function("S.box === 'encoder.embedding_norm'")


def test_why_names_the_token_and_the_head_that_count(show: OpenPage) -> None:
    page = show("tab=steps")
    page.get_by_role("button", name="Why").click()
    first = page.locator(".whys").first.locator(".number").first
    ids = TRANSLATOR.source.encode(TEXT)
    source = Padded.unpadded(torch.tensor([[*ids, EOS]]))
    target = Padded.unpadded(torch.tensor([[BOS]]))
    written = explain_translation(TRANSLATOR, (TEXT,)).sequences["written"][0]
    token = TRANSLATOR.target.encode(written)[0]
    chances = []
    for number in range(1, len(ids) + 2):
        with torch.inference_mode(), knock_out(TRANSLATOR.model, KnockOut((), (number,))):
            chances.append(float(TRANSLATOR.model(source, target)[0, -1].softmax(-1)[token]))
    assert float(first.inner_text()) == pytest.approx(min(chances), abs=0.0006)


def test_a_link_with_too_long_a_text_shows_the_example(show: OpenPage) -> None:
    page = show("text=" + "+".join(["w1"] * 40))
    assert answer(page) == explain_translation(TRANSLATOR, (TEXT,)).answer


TYPED = {
    "masked": "a <mask> sang",
    "vectors": "a bird sang",
    "replies": "a cat\nten dogs\nthe mat",
    "items": "the mat sat",
}


@pytest.mark.parametrize("name", TYPED)
def test_other_tasks(name: str, show: OpenPage) -> None:
    make, example = PREDICTORS[name]
    predictor = make()
    page = show("", live_html(predictor, example))
    page.locator(".typed").first.fill(TYPED[name])
    python = explained(predictor, TYPED[name])
    vector = python.vectors.get("embedding")
    expect(page, python.answer if vector is None else f"[{len(vector)}]")
    for tab in page.get_by_role("tab").all():
        tab.click()
        assert page.get_by_role("tabpanel").inner_text().strip()


def test_a_large_model_writes_few_tokens_until_asked(show: OpenPage) -> None:
    predictor = random_dialogue()
    model = live_of(predictor, "run").packed("float32")
    decoding = {**model["decoding"], "min_length": 12, "max_tokens": 20}
    model = {**model, "decoding": decoding, "parameters": 30_000_000}
    page = show("", page_of([explained(predictor, "the cat").packed()], model))
    assert page.evaluate("D.steps.length") == 8
    assert "at most 8 tokens" in page.locator("#bar .note").last.inner_text()
    page.locator("select[data-k=most]").select_option("0")
    assert page.evaluate("D.steps.length") > 12
    assert "at most" not in page.locator("#bar .note").last.inner_text()
    page.get_by_role("button", name="Restore all").click()
    assert page.evaluate("D.steps.length") == 8


def test_labels_of_a_long_text_are_shaded_when_asked(show: OpenPage) -> None:
    classifier = random_classifier()
    text = "the cat sat on the mat a bird sang in the tree the dogs ran, and ran ten cats"
    expected = explained(classifier, text)
    page = show("tab=answer", live_html(classifier, text))
    shades = "chips => chips.filter(chip => Number(chip.style.getPropertyValue('--a')) > 0).length"
    assert page.locator("button.chip").evaluate_all(shades) == 0
    page.locator("button.chip").nth(2).click()
    shown = page.locator(".two .bars").nth(1).inner_text().split("\n")
    assert shown == [part for name, p in expected.hidden[2].guesses for part in (name, f"{p:.3f}")]
    page.locator("button.chip").nth(2).click()
    page.get_by_role("button", name="Shade by what each token counts").click()
    label, whole = expected.labels[0]
    lost = sum(dict(token.guesses).get(label, 0) < whole for token in expected.hidden)
    assert page.locator("button.chip").evaluate_all(shades) == lost > 0


def test_the_cosine_of_two_vectors(show: OpenPage) -> None:
    embedder = random_embedder(SymbolsConfig())
    first, second = (explained(embedder, text) for text in ("the cat", "a bird"))
    page = show("second=a+bird&tab=beside", live_html(embedder, "the cat"))
    cosine = float((first.vectors["embedding"] * second.vectors["embedding"]).sum())
    expected = f"Cosine of the two vectors: {cosine:.2f}".replace("-", "−")
    assert page.get_by_text(expected).is_visible()


CHANCES = "D.steps.map((step) => step.probability)"


def test_a_number_by_hand_flows_to_the_answer(show: OpenPage) -> None:
    page = show("tab=hand")
    before = page.evaluate(CHANCES)
    page.locator(".vector input").last.fill("50")
    page.keyboard.press("Tab")
    assert page.evaluate("D.recording && live.changes().patches.length") == 1
    assert page.evaluate(CHANCES) != before
    page.get_by_role("tab", name="Steps").click()
    assert "No credit" in page.locator("#view").inner_text()
    page.go_back()
    assert page.get_by_role("tab", selected=True).inner_text().endswith("By hand")
    page.get_by_role("button", name="Undo", exact=True).click()
    assert page.evaluate(CHANCES) == before


def test_a_vector_of_another_sentence_brings_its_answer(show: OpenPage) -> None:
    page = show("tab=lab&donor=w9 w5")
    other = page.evaluate("recordedOf(donorTexts()).recording.outputs['encoder.embedding_norm'][1]")
    page.locator("[data-k=from1]").click()
    page.locator("[data-k=to0]").click()
    put = page.evaluate("D.recording.outputs['encoder.embedding_norm'][0]")
    assert put == pytest.approx(other)
    page.get_by_role("button", name="Restore all").click()
    assert page.evaluate("live.changes().patches") == []


def test_shares_of_a_label(show: OpenPage) -> None:
    """In a page with a model, and in one without."""
    classifier = random_classifier()
    explanation = explained(classifier, "the cat sat")
    expected = [f"{x:+.2f}" if abs(x) >= 0.005 else "0.00" for x in explanation.credit[0].source]
    for content in (live_html(classifier, "the cat sat"), explanation.page()):
        page = show("tab=answer", content)
        shown = page.locator(".share").all_inner_texts()
        assert [text.replace("−", "-") for text in shown] == expected


def test_two_heads_together(show: OpenPage) -> None:
    """A head of the same attention tells the other nothing."""
    page = show("tab=lab&step=1&pair=decoder.layers.0.self_attention:1")
    page.locator("[data-k=pairs]").click()
    page.wait_for_selector("[data-point=pairs] table")
    rows = page.evaluate("PAIRS.rows.map(({ numbers }) => numbers)")
    assert len(rows) == page.evaluate("headsShown().length") - 1 > 4
    alone = {round(both - single - beyond, 4) for single, both, beyond, _ in rows}
    assert len(alone) == 1
    same = page.evaluate("headsShown().map(([out]) => out)").index(
        "decoder.layers.0.self_attention:2"
    )
    assert rows[same - 1][3] == 0


def test_shares_of_a_step_add_up(show: OpenPage) -> None:
    page = show("tab=steps&step=1")
    page.select_option("[data-k=against]", index=2)
    credit = page.evaluate("stepCredit()")
    parts = [credit[key] for key in ("source", "source_positions", "read", "read_positions")]
    whole = sum(map(sum, parts)) + credit["biases"]
    assert whole == pytest.approx(credit["difference"], abs=1e-4)
    assert page.locator(".share").count() > 2


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        ("tab=figure", "Recurrent layers"),
        ("tab=heads&att=3", "Leave this head out"),
        ("tab=steps&outLayers=decoder.layers.0", "exact shares"),
        ("tab=lab&module=decoder.layers.0.recurrence", "decoder · layer 1 · Recurrence"),
    ],
)
def test_screens_of_an_ssru_decoder(show: OpenPage, at: str, shown: str) -> None:
    translator = random_translator(decoder={"kind": "ssru", "n_heads": 2, "d_ff": 24})
    page = show(at, live_html(translator, TEXT))
    assert shown in page.inner_text("#view")
