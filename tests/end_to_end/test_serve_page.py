"""The page of `transduce serve` in a real browser, by clicks and keys: translation."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import TEXT, Open, needs_chromium, typed, written
from helpers.served import Served, library
from helpers.waiting import wait_for

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
pytestmark = [needs_chromium, pytest.mark.slow]  # some seconds each, and there are many

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> &amp; {0} שלום 👩‍👩‍👧 \u202e ab."


def test_translates_as_one_types(show: Open, de_en: Path) -> None:
    page = show()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_label("From", exact=True).select_option("de")
    page.get_by_label("To", exact=True).select_option("en")
    page.get_by_label("Text to translate").press_sequentially(TEXT)
    page.wait_for_selector("#target .w")
    run = library(de_en)
    assert written(page) == " ".join(
        translation.text for translation in run.translate(["Rot gehen.", "Müde Tür!"])
    )
    assert sum(url.endswith("/page/translate") for url in asked) == 1
    assert page.get_by_role("status").inner_text().startswith("Translation: ")
    page.get_by_role("button", name="Clear").click()
    assert written(page) == "" and page.get_by_label("Text to translate").input_value() == ""


def test_the_cursor_is_in_the_text_from_the_start(show: Open) -> None:
    page = show()
    page.wait_for_function("document.activeElement.id === 'source'")
    page.locator("#from").select_option("de")
    page.locator("#to").select_option("en")
    page.locator("#source").focus()
    page.keyboard.type("Rot ж gehen ☃.")
    page.wait_for_selector("#target .w", timeout=30_000)
    expect(page.locator("#state")).to_have_text("Unknown to the model: ж ☃", timeout=30_000)
    page.keyboard.press("Control+A")
    page.keyboard.type("Rot.")
    expect(page.locator("#state")).not_to_contain_text("Unknown", timeout=30_000)


def test_a_key_cancels_the_request_before(show: Open, server: Served) -> None:
    def cancelled() -> float:
        text = server.ask("/metrics")[1]
        result = re.search(r"^transduce_cancelled_total (\S+)", text, re.MULTILINE)
        return float(result[1]) if result else 0.0

    page = show()
    failed: list[str] = []
    page.on("requestfailed", lambda request: failed.append(request.failure))
    before = cancelled()
    long = "Rot gehen müde Tür. " * 240
    page.get_by_label("From", exact=True).select_option("de")
    page.get_by_label("To", exact=True).select_option("en")
    with page.expect_request("**/page/translate"):
        page.get_by_label("Text to translate").fill(long)
    expect(page.locator("#target")).not_to_have_text("")
    page.get_by_label("Text to translate").fill("Rot.")
    page.wait_for_selector("#target .w")
    assert failed == ["net::ERR_ABORTED"]
    wait_for(lambda: cancelled() == before + 1)
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
    observed = target.locator(".w").evaluate_all(
        "all => all.map(e => [parseInt(e.title), e.classList.contains('doubt')])"
    )
    assert observed and all(doubt == (percent < 50) for percent, doubt in observed if percent != 50)
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
    expected = server.ask("/translate", {"q": TEXT, "source": "de", "target": "fr"})[1]
    expect(page.locator("#target")).to_have_text(expected["translatedText"])
    assert not page.get_by_role("button", name="Explain").is_visible()
    page.get_by_text("Glossary", exact=True).click()
    page.get_by_role("button", name="Add a term").click()
    page.get_by_label("Term", exact=True).fill("rot")
    page.get_by_label("Its translation").fill("Baum")
    expect(page.locator("#state")).to_contain_text("A glossary needs a direct translation")
    assert written(page) == expected["translatedText"]


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
