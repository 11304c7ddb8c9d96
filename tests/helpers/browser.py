"""Chromium, and the page of a server in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.served import Served

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
)
TEXT = "Rot gehen. Müde Tür!"

Open = Callable[..., Any]


@contextmanager
def chromium(*arguments: str) -> Iterator[Any]:
    """A browser; skips the test where playwright is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=[*ARGUMENTS, *arguments])
        yield opened
        opened.close()


@contextmanager
def opened_files(browser: Any, timeout: float = 8000, **defaults: Any) -> Iterator[Open]:
    """Opens files from disk, at a fragment; their console must stay empty, and only files, data and
    workers be read."""
    complaints: list[str] = []
    fetched: list[str] = []
    contexts = []

    def open_file(file: Path, at: str = "", **settings: Any) -> Any:
        context = browser.new_context(**{"locale": "en-GB", **defaults, **settings})
        contexts.append(context)
        context.set_default_timeout(timeout)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(f"{file.as_uri()}#{at}" if at else file.as_uri())
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert complaints == [], complaints
    assert {url.split(":")[0] for url in fetched} <= {"file", "data", "blob"}


@contextmanager
def served_page(browser: Any, server: Served) -> Iterator[Open]:
    """Opens the page of a server; its console must stay empty, and no other host be contacted."""
    output: list[str] = []
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
                output.append(text)

        page.on("console", lambda message: note(message.text))
        page.on("pageerror", lambda error: output.append(str(error)))
        page.on("dialog", lambda dialog: output.append("a dialog"))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(server.url + "/")
        page.wait_for_selector("#translation:not([hidden])")
        assert context.cookies() == []
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert output == []
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


def sound_seconds(page: Any) -> float:
    """Length of the sound that the page plays."""
    sound = page.locator("#result audio")
    sound.evaluate(
        "audio => new Promise(done => audio.duration ? done() : audio.onloadedmetadata = done)"
    )
    length: float = sound.evaluate("audio => audio.duration")
    return length
