"""The page of a review: approved and corrected by keys, saved, and merged."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.browser import chromium, needs_chromium, opened_files
from transduce.cli import documents
from transduce.cli.main import main
from transduce.localise.document import Record, Segment

pytestmark = [pytest.mark.system, needs_chromium]


def capitals(file: str, segments: Sequence[Segment]) -> list[Record]:
    """A translation that keeps what has tags as it is, and leaves one text."""
    return [
        Record(s.key, s.source, s.source, "needs-translation", "its placeholder is lost")
        if "lost" in s.source
        else Record(s.key, s.source, s.source if s.tags else s.source.upper(), "translated")
        for s in segments
    ]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A document of many texts, and its page beside."""
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(documents, "translation_by", lambda *_: (capitals, "en", "de"))
    rows = "".join(f"<p>Text {number} of many</p>" for number in range(500))
    text = f"<p>See <b>the page</b> & it.</p><p>This is lost</p><p>Hello</p>{rows}"
    (tmp_path / "a.html").write_text(text, encoding="utf-8")
    command = [str(tmp_path / "run"), str(tmp_path / "a.html"), "--review", str(tmp_path / "r")]
    main(["localise", *command])
    return tmp_path / "r.html"


def test_a_review_is_merged(made: Path) -> None:
    with chromium() as browser, opened_files(browser) as open_file:
        page = open_file(made)
        assert page.locator("article").count() == 503
        first = page.locator("textarea").first
        assert first.input_value() == "See ⟨1⟩the page⟨/1⟩ & it."
        first.fill("Siehe die Seite.")
        first.press("Enter")  # a lost tag is not approved
        assert page.locator("article").first.locator("em").inner_text() == (
            "its tags are not those of the source"
        )
        first.fill("⟨1⟩Die Seite⟨/1⟩ & das <da>.")
        first.press("Enter")
        page.keyboard.type("Nicht mehr verloren")
        page.keyboard.press("Enter")
        started = time.monotonic()
        for _ in range(400):
            page.keyboard.press("Enter")
        page.wait_for_function("document.querySelectorAll('.approved').length === 402")
        assert (time.monotonic() - started) / 400 < 0.25
        page.reload()  # nothing is lost
        assert page.locator("article.approved").count() == 402
        page.select_option("#state", "open")
        assert page.locator("article:visible").count() == 101
        page.fill("#search", "text 450")
        assert page.locator("article:visible").count() == 1
        with page.expect_download() as saved:
            page.click("#save")
        saved.value.save_as(made.with_suffix(".xlf"))
    review = made.with_suffix(".xlf").read_text("utf-8")
    assert review.count('approved="yes"') == 402
    out = made.parent / "out"
    command = ["-", str(made.parent / "a.html"), "--merge", str(made.with_suffix(".xlf"))]
    main(["localise", *command, "--output", str(out)])
    text = (out / "a.html").read_text("utf-8")
    assert text.startswith(
        "<p><b>Die Seite</b> &amp; das &lt;da&gt;.</p><p>Nicht mehr verloren</p><p>HELLO</p>"
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows(made: Path, width: int) -> None:
    with chromium() as browser, opened_files(browser) as open_file:
        page = open_file(made, viewport={"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=str(made.parent / "page.png"))
