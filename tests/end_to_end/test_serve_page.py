"""The page of `transduce serve` in a real browser, by clicks and keys."""

from __future__ import annotations

import re
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.labelled_texts import sentences, settings
from helpers.served import Served, library, served
from helpers.tiny_run import write_tsv

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.slow,  # some seconds each, and there are many
]

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TEXT = "Rot gehen. Müde Tür!"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> &amp; {0} שלום 👩‍👩‍👧 \u202e ab."

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield opened
        opened.close()


@pytest.fixture
def show(browser: Any, server: Served) -> Iterator[Open]:
    """Opens the page; in the end its console must be empty, and no other host asked."""
    said: list[str] = []
    asked: list[str] = []
    contexts = []

    def open_page(expected: str = "", **settings: Any) -> Any:
        """expected: part of messages that the browser writes about failed requests."""
        context = browser.new_context(**{"locale": "en-GB", **settings})
        contexts.append(context)
        context.set_default_timeout(8000)
        page = context.new_page()

        def note(text: str) -> None:
            if not expected or expected not in text:
                said.append(text)

        page.on("console", lambda message: note(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append("a dialog"))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(server.url + "/")
        page.wait_for_selector("#translation:not([hidden])")
        assert context.cookies() == []
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert {url for url in asked if not url.startswith(server.url)} <= {"about:blank"}


def typed(page: Any, text: str = TEXT, source: str = "de", target: str = "en") -> Any:
    """Choose languages and type a text; returns the translation, complete with its words."""
    page.get_by_label("From", exact=True).select_option(source)
    page.get_by_label("To", exact=True).select_option(target)
    page.get_by_label("Text to translate").fill(text)
    page.wait_for_selector("#target .w")
    return page.locator("#target")


def written(page: Any) -> str:
    text: str = page.locator("#target").text_content()
    return text


def test_translates_as_one_types(show: Open, de_en: Path) -> None:
    page = show()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_label("From", exact=True).select_option("de")
    page.get_by_label("To", exact=True).select_option("en")
    page.get_by_label("Text to translate").press_sequentially(TEXT)
    page.wait_for_selector("#target .w")
    run = library(de_en)
    assert written(page) == " ".join(one.text for one in run.translate(["Rot gehen.", "Müde Tür!"]))
    assert sum(url.endswith("/page/translate") for url in asked) == 1
    assert page.get_by_role("status").inner_text().startswith("Translation: ")
    page.get_by_role("button", name="Clear").click()
    assert written(page) == "" and page.get_by_label("Text to translate").input_value() == ""


def test_a_key_cancels_the_request_before(show: Open, server: Served) -> None:
    def cancelled() -> float:
        text = server.ask("/metrics")[1]
        found = re.search(r"^transduce_cancelled_total (\S+)", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    page = show()
    failed: list[str] = []
    page.on("requestfailed", lambda request: failed.append(request.failure))
    before = cancelled()
    long = "Rot gehen müde Tür. " * 60
    page.get_by_label("From", exact=True).select_option("de")
    page.get_by_label("To", exact=True).select_option("en")
    with page.expect_request("**/page/translate"):
        page.get_by_label("Text to translate").fill(long)
    expect(page.locator("#target")).not_to_have_text("")
    page.get_by_label("Text to translate").fill("Rot.")
    page.wait_for_selector("#target .w")
    assert failed == ["net::ERR_ABORTED"]
    assert cancelled() == before + 1
    assert page.locator("#fault").inner_text() == ""


def test_a_word_shows_its_attention_and_alternatives(show: Open) -> None:
    page = show()
    target = typed(page)
    words = target.get_by_role("button")
    words.nth(1).click()
    panel = page.get_by_role("region", name="About the chosen word")
    assert words.nth(1).text_content() in panel.inner_text()
    assert re.search(r"Probability \d+ %", panel.inner_text())
    assert page.locator("#shade mark").count() > 0
    shaded = page.locator("#shade").text_content()
    assert shaded == TEXT + "\n"
    other = panel.get_by_role("listitem").get_by_role("button").first
    chosen = other.text_content()
    first = words.nth(0).text_content()
    other.click()
    expect(page.locator("#target")).to_contain_text(chosen)
    page.wait_for_selector("#target .w.on")
    assert written(page).startswith(chosen) and chosen.startswith(first)
    page.keyboard.press("Escape")
    assert not panel.is_visible() and page.locator("#shade mark").count() == 0


def test_doubtful_words_are_underlined(show: Open, server: Served) -> None:
    page = show()
    target = typed(page)
    seen = target.locator(".w").evaluate_all(
        "all => all.map(e => [parseInt(e.title), e.classList.contains('doubt')])"
    )
    assert seen and all(doubt == (percent < 50) for percent, doubt in seen if percent != 50)
    doubtful = target.locator(".doubt").first
    assert doubtful.evaluate("e => getComputedStyle(e).textDecorationLine") == "underline"


def test_languages_are_detected_and_swapped(show: Open) -> None:
    page = show()
    page.get_by_label("From", exact=True).select_option("auto")
    page.get_by_label("To", exact=True).select_option("en")
    text = "Der Hund und die Katze gehen in das Haus."
    page.get_by_label("Text to translate").fill(text)
    page.wait_for_selector("#target .w")
    assert page.locator("#from option").first.inner_text() == "Detected: German"
    assert page.get_by_role("button", name="Swap languages").is_disabled(), (
        "nothing translates back"
    )
    assert page.locator("#to option").all_inner_texts() == ["English", "French"]
    page.get_by_label("From", exact=True).select_option("en")
    assert page.locator("#to option").all_inner_texts() == ["French"]


def test_through_a_pivot(show: Open, server: Served) -> None:
    page = show()
    page.get_by_label("From", exact=True).select_option("de")
    page.get_by_label("To", exact=True).select_option("fr")
    page.get_by_label("Text to translate").fill(TEXT)
    wanted = server.ask("/translate", {"q": TEXT, "source": "de", "target": "fr"})[1]
    expect(page.locator("#target")).to_have_text(wanted["translatedText"])
    assert not page.get_by_role("button", name="Explain").is_visible()
    page.get_by_text("Glossary", exact=True).click()
    page.get_by_role("button", name="Add a term").click()
    page.get_by_label("Term", exact=True).fill("rot")
    page.get_by_label("Its translation").fill("Baum")
    expect(page.locator("#state")).to_contain_text("A glossary needs a direct translation")
    assert written(page) == wanted["translatedText"]


def test_a_glossary_holds_in_its_sentence(show: Open) -> None:
    page = show()
    page.get_by_text("Glossary", exact=True).click()
    page.get_by_role("button", name="Add a term").click()
    page.get_by_label("Term", exact=True).fill("müde")
    page.get_by_label("Its translation").fill("Baum")
    typed(page)
    first, second = written(page).split(" ", 1)[0], written(page)
    assert "Baum" in second and "Baum" not in first
    assert page.locator("#terms").inner_text() == "(1)"
    page.get_by_role("button", name="Remove this term").click()
    expect(page.locator("#target")).not_to_contain_text("Baum")


def test_a_file_comes_back(show: Open, server: Served, tmp_path: Path) -> None:
    page = show()
    page.get_by_label("From", exact=True).select_option("de")
    page.get_by_label("To", exact=True).select_option("en")
    file = tmp_path / "zwei.txt"
    file.write_text("Rot gehen.\n\nMüde Tür!\n", encoding="utf-8")
    page.locator("#file").set_input_files(file)
    page.get_by_role("link").wait_for()
    with page.expect_download() as waiting:
        page.get_by_role("link", name="Save zwei_en.txt").click()
    path = waiting.value.path()
    assert path.read_text(encoding="utf-8") == server.translated(file.read_text(encoding="utf-8"))
    drop = """() => {
        const files = new DataTransfer();
        files.items.add(new File(["Rot."], "drei.txt", { type: "text/plain" }));
        for (const name of ["dragover", "drop"])
          document.body.dispatchEvent(
            new DragEvent(name, { dataTransfer: files, bubbles: true, cancelable: true }));
    }"""
    page.evaluate(drop)
    assert page.get_by_role("link", name="Save drei_en.txt").is_visible() or page.wait_for_selector(
        "text=Save drei_en.txt"
    )


def test_both_languages_and_themes_stay(show: Open) -> None:
    page = show(locale="zh-CN")
    assert page.evaluate("document.documentElement.lang") == "zh-CN"
    assert page.locator("#add").text_content() == "添加术语"
    assert "德语" in page.locator("#from").inner_text()
    page.get_by_role("button", name="English").click()
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    for name in ("Theme: system", "Theme: light"):
        page.get_by_role("button", name=name).click()
    assert page.evaluate(background) != light
    page.reload()
    page.wait_for_selector("#translation:not([hidden])")
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.evaluate(background) != light


def test_by_keys_alone(show: Open) -> None:
    page = show()
    page.get_by_label("From", exact=True).select_option("de")
    page.get_by_label("To", exact=True).select_option("en")
    page.get_by_label("Text to translate").focus()
    page.keyboard.insert_text(TEXT)
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#target .w")
    for _ in range(8):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('#target .w')"):
            break
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.word") == "1"
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    assert "Looked at" in page.get_by_role("status").inner_text()
    assert page.evaluate("document.activeElement.dataset.word") == "1"
    page.keyboard.press("Escape")
    assert not page.locator("#word").is_visible()
    page.keyboard.press("Alt+g")
    assert page.evaluate("document.activeElement.placeholder") == "Term"
    named = page.locator("[aria-keyshortcuts^=Alt]").evaluate_all(
        "all => all.map(e => e.getAttribute('aria-keyshortcuts').slice(-1))"
    )
    page.get_by_text("Keyboard", exact=True).click()
    assert sorted(named) == sorted(re.findall(r"Alt ([A-Z])", page.inner_text("#shortcuts")))


def test_right_to_left(show: Open) -> None:
    page = show()
    source = page.get_by_label("Text to translate")
    source.fill("שלום עולם")
    assert source.evaluate("e => e.matches(':dir(rtl)')")
    source.fill("Rot")
    assert source.evaluate("e => e.matches(':dir(ltr)')")


def test_text_of_strangers_is_shown_and_not_obeyed(show: Open) -> None:
    page = show()
    typed(page, HOSTILE + "\n" + TEXT)
    page.locator("#target .w").last.click()
    assert page.locator("main img").count() == 0 and page.locator("script").count() == 1
    assert page.locator("#shade").text_content() == HOSTILE + "\n" + TEXT + "\n"
    assert written(page).count("{0}") == 1


def test_too_much_text_is_one_line(show: Open) -> None:
    page = show()
    page.get_by_label("Text to translate").fill("Rot gehen. " * 1900)
    alert = page.get_by_role("alert")
    assert alert.inner_text() == "20,900 characters; this server takes 20,000 at once."
    page.get_by_label("Text to translate").fill("Rot")
    assert alert.inner_text() == ""


def test_errors_are_one_line(show: Open) -> None:
    page = show(expected="Failed to load resource")
    answers: list[Callable[[Any], None]] = [
        lambda route: route.abort(),
        lambda route: route.fulfill(status=500, body="<b>oops</b>"),
        lambda route: route.fulfill(
            status=429, json={"error": {"message": "Slowdown", "kind": "rate_limit"}}
        ),
        lambda route: route.fulfill(status=200, body='data: {"text": "half'),
    ]
    lines = []
    typed(page)
    page.route("**/page/translate", lambda route: answers.pop(0)(route))
    for text in ("a", "b", "c", "d"):
        page.get_by_label("Text to translate").fill(text)
        page.wait_for_selector("#fault:not(:empty)")
        lines.append(page.get_by_role("alert").inner_text())
        assert written(page) == "", "the text before has another translation"
        assert not page.get_by_role("button", name="Copy").is_visible()
    assert lines == [
        "The server cannot be reached.",
        "The answer broke off.",
        "The server is busy; try again in a moment.",
        "The answer broke off.",
    ]
    page.unroute("**/page/translate")
    typed(page)
    assert page.get_by_role("alert").inner_text() == ""


@pytest.mark.parametrize("width", [1280, 360])
def test_nothing_is_wider_than_the_screen(show: Open, width: int) -> None:
    page = show(viewport={"width": width, "height": 740}, color_scheme="dark")
    typed(page, "x" * 300 + " " + TEXT)
    page.locator("#target .w").last.click()
    page.keyboard.press("Alt+g")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_an_explanation_follows_its_options(show: Open, server: Served, de_en: Path) -> None:
    page = show(locale="zh-CN")
    page.locator("#from").select_option("de")
    page.locator("#to").select_option("en")
    page.locator("#source").fill(TEXT)
    page.get_by_role("button", name="解释", exact=True).click()
    inside = page.frame_locator("#explained")
    title = inside.locator("h1")
    expect(title).to_contain_text("Rot gehen.")
    assert inside.get_by_role("tab").first.inner_text() == "1 逐步"
    for name in inside.get_by_role("tab").all():
        name.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("前缀").fill("Baum")
    dialog.get_by_label("束宽").fill("2")
    dialog.get_by_label("束宽").press("Enter")
    options = library(de_en).predictor.options
    wanted = library(de_en).explain("Rot gehen.", replace(options, prefix="Baum", beam_size=2))
    assert wanted.answer.startswith("Baum")
    expect(title).to_have_text(f"Rot gehen.→{wanted.answer}")
    page.locator("#method").select_option("sample")
    dialog.get_by_label("温度").fill("0.1")
    dialog.get_by_role("button", name="解释").click()
    expect(inside.get_by_role("tab").first).to_be_visible()
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert page.evaluate("document.activeElement.id") == "explain"


def test_an_explanation_without_a_head_and_a_token(show: Open, server: Served) -> None:
    page = show(locale="zh-CN")
    page.locator("#from").select_option("de")
    page.locator("#to").select_option("en")
    page.locator("#source").fill(TEXT)
    page.get_by_role("button", name="解释", exact=True).click()
    inside = page.frame_locator("#explained")
    expect(inside.locator("h1")).to_contain_text("Rot gehen.")
    dialog = page.get_by_role("dialog")
    inside.get_by_role("tab").nth(1).click()
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
    expect(inside.get_by_role("tab", selected=True)).to_contain_text("逐步")


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
    for task, (inputs, decodes, _, wanted) in MODELS.items():
        page.get_by_label("Model").select_option(task)
        boxes = page.locator("#inputs textarea")
        assert boxes.count() == len(inputs)
        for box in boxes.all():
            box.fill("x")
        if decodes:
            page.get_by_role("button", name="Send" if task == "dialogue" else "Run").click()
        expect(page.locator("#result")).to_contain_text(re.split(r"[\n\t]", wanted)[-1])
        assert wanted in page.inner_text("#result"), task
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


@pytest.mark.slow
def test_as_much_as_the_server_takes(show: Open) -> None:
    page = show()
    page.set_default_timeout(120_000)
    text = "Rot gehen müde Tür. " * 1000
    typed(page, text)
    expect(page.locator("#target")).to_have_attribute("aria-busy", "false")
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    page.locator("#target .w").nth(3).click()
    assert page.locator("#shade").text_content() == text + "\n"
    assert page.get_by_role("alert").inner_text() == ""


def test_the_policy_admits_nothing_else(server: Served) -> None:
    for path in ("/", "/page/page.js", "/page/page.css"):
        with urllib.request.urlopen(server.url + path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            content = answer.read().decode()
        assert "unsafe" not in policy and "default-src 'none'" in policy
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", content)
    assert server.ask("/page/nothing.js")[0] == 404
    assert server.ask("/page/..%2f..%2fsettings.py")[0] == 404
