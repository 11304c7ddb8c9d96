"""The page of `transduce serve` in a real browser: explanations, other tasks, policy."""

from __future__ import annotations

import re
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.audio import encoded, tone
from helpers.browser import TEXT, Open, needs_chromium, sound_seconds
from helpers.labelled_texts import sentences, settings
from helpers.served import Served, library, served
from helpers.tiny_run import write_tsv

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
pytestmark = [needs_chromium, pytest.mark.slow]  # some seconds each, and there are many


def explained(show: Open) -> tuple[Any, Any]:
    """A page in Chinese, and the frame of the explanation asked for there."""
    page = show(locale="zh-CN")
    page.locator("#from").select_option("de")
    page.locator("#to").select_option("en")
    page.locator("#source").fill(TEXT)
    page.get_by_role("button", name="解释", exact=True).click()
    inside = page.frame_locator("#explained")
    return page, inside


def test_an_explanation_follows_its_options(show: Open, server: Served, de_en: Path) -> None:
    page, inside = explained(show)
    title = inside.locator("h1")
    expect(title).to_contain_text("Rot gehen.")
    assert inside.get_by_role("tab").first.inner_text() == "1 图 1"
    for name in inside.get_by_role("tab").all():
        name.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("前缀").fill("Baum")
    dialog.get_by_label("束宽").fill("2")
    dialog.get_by_label("束宽").press("Enter")
    options = library(de_en).predictor.options
    expected = library(de_en).explain("Rot gehen.", replace(options, prefix="Baum", beam_size=2))
    assert expected.answer.startswith("Baum")
    expect(title).to_have_text(f"Rot gehen.→{expected.answer}")
    page.locator("#method").select_option("sample")
    dialog.get_by_label("温度").fill("0.1")
    dialog.get_by_role("button", name="解释").click()
    expect(inside.get_by_role("tab").first).to_be_visible()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert page.evaluate("document.activeElement.id") == "explain"


def test_a_live_explanation_computes(show: Open, de_en: Path) -> None:
    page, inside = explained(show)
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("实时").check()
    dialog.get_by_role("button", name="解释").click()
    inside.get_by_label("输入文本").fill("Müde Tür!")
    expect(inside.locator("h1")).to_have_text(f"→{library(de_en).explain('Müde Tür!').answer}")


def test_an_explanation_without_a_head_and_a_token(show: Open, server: Served) -> None:
    page, inside = explained(show)
    expect(inside.locator("h1")).to_contain_text("Rot gehen.")
    dialog = page.get_by_role("dialog")
    inside.get_by_role("tab", name="注意力头").click()
    inside.locator(".thumb").last.click()
    head = inside.locator(".big p .token").inner_text()
    assert re.fullmatch(r"decoder\.layers\.\d\.cross_attention:[2-9]", head)
    dialog.get_by_label("去掉头").fill(head)
    dialog.get_by_label("遮住词元").fill("1 2")
    dialog.get_by_role("button", name="解释").click()
    names = inside.locator(".runs h2")
    left_out = f"{head}, token 1, token 2"
    expect(names).to_have_text(
        [re.compile(r"^\S+$"), re.compile(f"without {re.escape(left_out)}$")]
    )
    inside.locator(".runs section").last.get_by_role("button").last.click()
    expect(inside.get_by_role("tab", selected=True)).to_contain_text("图 1")


def test_a_faulty_explanation_is_one_line(server: Served) -> None:
    asked = {"q": "Rot.", "source": "de", "target": "en"}
    status, page = server.ask("/page/explanation", {**asked, "beam_size": "many"})
    assert status == 400 and "<p>beam_size is not a number</p>" in page
    status, page = server.ask("/page/explanation", {**asked, "beam_size": 10000})
    assert status == 400 and "exceeds 16" in page
    for field in ("q", "prefix"):
        status, page = server.ask("/page/explanation", {**asked, field: "x" * 1001})
        assert status == 400 and "takes at most 1000 characters" in page
    status, page = server.ask("/page/explanation", {**asked, "without_token": "one"})
    assert status == 400 and "<p>without_token is not a list of numbers</p>" in page
    status, page = server.ask("/page/explanation", {**asked, "without_token": "99"})
    assert status == 400 and "token 99 is not one of" in page
    status, page = server.ask("/page/explanation", {**asked, "without_head": "a:1"})
    assert status == 400 and "no such attention; try" in page
    status, page = server.ask("/page/explanation", {**asked, "target": "fr"})
    assert status == 400 and "no run translates de to fr directly" in page
    status, page = server.ask("/page/explanation", {**asked, "prefix": "<b>\u4e00"})
    assert status == 400 and "<b>" not in page


MODELS: dict[str, tuple[list[str], bool, dict[str, Any], str]] = {
    "classification": (["text"], False, {"label": "a", "probabilities": {"a": 0.75}}, "75 %"),
    "question-answering": (
        ["question", "context"],
        False,
        {"answer": "x", "start": 0, "end": 1, "probability": 0.5},
        "x\n50 %",
    ),
    "masked-language-model": (
        ["text"],
        False,
        {"filled": "all x", "candidates": [[{"token": "x", "probability": 0.5}]], "embedding": []},
        "all x\n\nx\n50 %",
    ),
    "recommendation": (["history"], False, {"items": [{"item": "b", "probability": 1}]}, "100 %"),
    "embedding": (["text"], False, {"embedding": [3, 4]}, "2 numbers\n\nx\t1.00"),
    "language-model": (["prompt"], True, {"continuation": "y", "tokens": []}, "x y"),
    "dialogue": (["history"], True, {"reply": "well"}, "x\n\nwell"),
}


def test_models_of_other_tasks(show: Open) -> None:
    page = show(locale="en-GB")
    listed = [
        {"name": task, "task": task, "pairs": [], "inputs": inputs, "decodes": decodes}
        for task, (inputs, decodes, _, _) in MODELS.items()
    ]
    sent: list[dict[str, Any]] = []

    def predicted(route: Any) -> None:
        sent.append(route.request.post_data_json)
        _, _, answer, _ = MODELS[sent[-1]["model"]]
        route.fulfill(json={"predictions": [answer]})

    page.route("**/api/models", lambda route: route.fulfill(json={"models": listed}))
    page.route("**/api/predict", predicted)
    page.reload()
    for task, (inputs, decodes, _, expected) in MODELS.items():
        page.get_by_label("Model").select_option(task)
        boxes = page.locator("#inputs textarea")
        assert boxes.count() == len(inputs)
        for box in boxes.all():
            box.fill("x")
        if decodes:
            page.get_by_role("button", name="Send" if task == "dialogue" else "Run").click()
        expect(page.locator("#result")).to_contain_text(re.split(r"[\n\t]", expected)[-1])
        assert expected in page.inner_text("#result"), task
    assert [one["inputs"] for one in sent[:2]] == [[["x"]], [["x", "x"]]]
    boxes.fill("more")
    boxes.press("Enter")
    expect(page.locator(".turn")).to_have_count(4)
    assert sent[-1]["inputs"] == ["x\nwell\nmore"]
    page.get_by_label("Model").select_option("")
    assert page.get_by_label("Text to translate").is_visible()


def test_a_recording(show: Open) -> None:
    page = show()
    task = "speech-recognition"
    listed = {"name": "ears", "task": task, "pairs": [], "inputs": ["audio"], "decodes": True}
    sent: list[str] = []

    def transcribed(route: Any) -> None:
        sent.append(route.request.headers["content-type"].partition(";")[0])
        route.fulfill(json={"text": "hear, hear"})

    page.route("**/api/models", lambda route: route.fulfill(json={"models": [listed]}))
    page.route("**/v1/audio/transcriptions", transcribed)
    page.reload()
    page.get_by_label("Model").select_option("ears")
    recording = {"name": "a.wav", "mimeType": "audio/wav", "buffer": b"RIFF"}
    page.get_by_label("Recording").set_input_files(recording)
    expect(page.locator("#result")).to_have_text("hear, hear")
    assert sent == ["multipart/form-data"]


def test_the_player(show: Open) -> None:
    page = show()
    listed = {"name": "voice", "task": "speech-synthesis", "pairs": [], "inputs": ["text"]}

    def spoken(route: Any) -> None:
        assert route.request.post_data_json["input"] == "hello"
        route.fulfill(body=encoded(tone(0.5)), content_type="audio/wav")

    page.route("**/api/models", lambda route: route.fulfill(json={"models": [listed]}))
    page.route("**/v1/audio/speech", spoken)
    page.reload()
    page.get_by_label("Model").select_option("voice")
    page.get_by_label("Text", exact=True).fill("hello")
    page.get_by_role("button", name="Run").click()
    assert sound_seconds(page) == pytest.approx(0.5, abs=0.01)


def test_a_key_and_a_run_of_labels(browser: Any, tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "kinds.tsv", sentences(60))
    run, _ = transduce.train(settings(data), tmp_path / "kinds")
    keys = tmp_path / "keys.txt"
    keys.write_text("secret\n", encoding="utf-8")
    context = browser.new_context(locale="en-GB")
    context.set_default_timeout(8000)
    with served(run, "--api-keys", keys, "--url-prefix", "/mt") as server:
        page = context.new_page()
        page.goto(server.url + "/")
        box = page.locator("#inputs textarea")
        box.fill("the red cow")
        page.wait_for_selector("#fault:not(:empty)")
        assert "API key" in page.get_by_role("alert").inner_text()
        page.get_by_label("API key").fill("secret")
        box.press("Control+Enter")
        expect(page.locator("#result .fill")).to_have_count(3)
        page.get_by_role("button", name="Explain").click()
        expect(page.frame_locator("#explained").locator("h1")).to_contain_text("the red cow")
        assert not page.get_by_label("Prefix").is_visible()
        assert page.get_by_role("alert").inner_text() == ""
    context.close()


def test_the_policy_admits_nothing_else(server: Served) -> None:
    for path in ("/", "/page/page.js", "/page/page.css"):
        with urllib.request.urlopen(server.url + path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            content = answer.read().decode()
        assert "unsafe" not in policy and "default-src 'none'" in policy
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", content)
    assert server.ask("/page/nothing.js")[0] == 404
    assert server.ask("/page/..%2f..%2fsettings.py")[0] == 404
