"""The microphone of the page of `transduce serve`, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transduce
from helpers.audio import encoded, noise, saved
from helpers.browser import chromium, needs_chromium, sound_seconds
from helpers.served import served
from helpers.tunes import RATE, recognition_recipe, slow_tune, write_slow_tunes

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
pytestmark = [needs_chromium, pytest.mark.slow, pytest.mark.system]


def test_words_while_one_speaks(tmp_path: Path) -> None:
    """Certain words of the microphone stay, the others are muted, and all become final."""
    recipe = recognition_recipe(write_slow_tunes(tmp_path / "tunes", 160), 400)
    run, _ = transduce.train(recipe, tmp_path / "run")
    quiet = noise(1.5, RATE, 3, 0.003)
    parts = [quiet, slow_tune("abedcabedcab", 1), quiet, slow_tune("dacbedacbed", 2), quiet]
    sound = saved(tmp_path / "a.wav", encoded(np.concatenate(parts), RATE))
    fake = f"--use-file-for-fake-audio-capture={sound}%noloop"
    with served(run) as server, chromium(fake) as browser:
        page = browser.new_context(locale="en-GB").new_page()
        failed: list[str] = []
        page.on("console", lambda message: failed.append(message.text))
        page.on("pageerror", lambda error: failed.append(str(error)))
        states: list[Any] = []
        page.on("response", lambda got: "page/speech" in got.url and states.append(got))
        page.goto(server.url + "/")
        page.get_by_role("button", name="Record", exact=True).click()
        page.get_by_role("button", name="End the recording").wait_for()
        final = page.locator("#result .result > span").nth(0)
        expect(final).to_contain_text(re.compile(r"[a-e].*\n.*[a-e]"), timeout=60_000)
        page.get_by_role("button", name="End the recording").click()
        assert sound_seconds(page) > 10
        expect(page.get_by_role("button", name="Record", exact=True)).to_be_visible()
        answers = [state.json() for state in states]
        assert failed == []
    certain = ""
    for answer in answers:
        assert (answer["final"] or answer["certain"]).startswith(certain), answers
        certain = answer["certain"]
    assert len([answer for answer in answers if answer["final"]]) == 2, answers
    assert any(answer["certain"] for answer in answers) and any(a["draft"] for a in answers)
