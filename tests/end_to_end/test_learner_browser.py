"""The page that learns, in a real browser, from disk."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.browser import needs_chromium
from helpers.node import node_with
from helpers.web import COMPILING, needs_learner, needs_wasm
from transduce.cli.main import main
from transduce.making.learner_page import learner_page

pytestmark = [needs_chromium, needs_wasm, needs_learner, pytest.mark.timeout(COMPILING)]
MOST_BYTES = 400_000
MOST_OF_A_TASK = 100
"""Milliseconds of CPU of a task of the page's own thread."""
WAIT = 240_000
"""Milliseconds for a worker on a busy machine."""

FAULTS = "axe.run(document).then(({ violations }) => violations.map(({ id }) => id))"
KEPT = """async () => {
  for (;;) {
    const training = await kept("readonly", (store) => store.get("training"));
    if (training) return training.steps;
    await new Promise((done) => setTimeout(done, 50));
  }
}"""
"""Waits until the browser keeps a training."""

SLIPS = """() => {
  const none = { right: 0, count: 0 };
  const confused = [["", " ", 5], [" ", "", 4], ["x", "y", 3]];
  const hard = [["x", [0, 9]], [" ", [1, 9]]];
  const shares = { ...none, interval: [0, 1], errors: 1, middle: 1, short: none, long: none };
  state.report = { ...shares, unseen: none, learnt: [" "], hard, confused, wrong: [] };
  drawReport();
}"""
"""Draws the report of a model whose slips are blanks, and units that are missing."""

Open = Callable[..., Any]


def table() -> str:
    """Words, and their letters in upper case between blanks."""
    letters = random.Random(1)
    rows = {"".join(letters.choices("abcde", k=letters.randint(2, 5))) for _ in range(150)}
    return "\n".join(f"{word}\t{' '.join(word.upper())}" for word in sorted(rows))


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens pages offline, in one context: what a page keeps is there for the next."""
    complaints: list[str] = []
    fetched: list[str] = []
    context = browser.new_context(locale="en-GB", offline=True)
    context.set_default_timeout(WAIT)
    file = tmp_path / "learner.html"
    assert main(["page", str(file)]) == 0

    def open_page(at: str = "", path: Path = file) -> Any:
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(path.as_uri() + at)
        return page

    yield open_page
    context.close()
    assert complaints == []
    assert {url.split(":")[0] for url in fetched} <= {"file", "blob", "data"}


def fill_in(page: Any, text: str, minutes: str = "0.05") -> None:
    page.fill("#text", text)
    page.wait_for_selector("#found:not([hidden])")
    page.fill("#minutes", minutes)


def saved(page: Any, form: str, path: Path) -> Path:
    with page.expect_download() as download:
        page.click(f"#save-{form}")
    download.value.save_as(path)
    return path


def test_the_page_is_small() -> None:
    assert len(learner_page().encode()) <= MOST_BYTES


def test_a_table_becomes_a_page(show: Open, tmp_path: Path) -> None:
    page = show()
    fill_in(page, table())
    assert "words and symbols" in page.inner_text("#account")
    page.fill("#name", "letters")
    page.click("#train")
    page.wait_for_selector("#report:not([hidden])")
    assert "95 % interval" in page.inner_text("#told")
    assert page.locator("#samples tbody tr").count() > 2
    assert page.locator("#maps figure").count() == 4
    page.fill("#asked", "abc")
    page.wait_for_selector("#candidates tbody tr")
    answer = page.inner_text("#answer")
    copy = show(path=saved(page, "html", tmp_path / "saved.html"))
    copy.wait_for_selector("#typed")
    assert copy.evaluate("transduce.translate('abc').then(({ text }) => text)") is not None
    assert "Pairs of words and symbols" in copy.inner_text("#account")
    with zipfile.ZipFile(saved(page, "zip", tmp_path / "saved.zip")) as archive:
        assert archive.testzip() is None
    run = tmp_path / "run"
    assert main(["import", str(tmp_path / "saved.zip"), str(run)]) == 0
    import transduce

    assert transduce.load(run, "cpu")("abc").text == answer


def test_blanks_are_visible_and_further_rows_are_told(show: Open) -> None:
    page = show("#lang=en")
    for repeats, rows in ((3, "2, 3, 4"), (4, "2, 3, 4, …")):
        page.fill("#text", "a\tb\n" + "a\tb\n" * repeats + "c\td")
        page.locator("#account", has_text=f"left out: {repeats} (row {rows})").wait_for()
    page.evaluate(SLIPS)
    told = page.inner_text("#told")
    assert "Always right: ␣." in told
    assert "x (0/9), ␣ (1/9)" in told
    assert "∅ → ␣ ×5, ␣ → ∅ ×4, x → y ×3" in told


def test_a_closed_tab_keeps_its_training(show: Open) -> None:
    page = show()
    fill_in(page, table(), "100")
    page.fill("#name", "kept")
    page.click("#train")
    page.wait_for_selector("#samples tbody tr")
    page.click("#pause")
    page.locator("#pause", has_text="Go on").wait_for()
    status = page.inner_text("#status")
    page.evaluate(KEPT)
    page.close()
    again = show()
    again.wait_for_selector("#kept:not([hidden])")
    assert "kept, step" in again.inner_text("#kept")
    again.click("#resume")
    again.wait_for_selector("#training:not([hidden])")
    again.click("#pause")
    step = int(status.split(",")[0].removeprefix("Step ").replace(",", ""))
    assert int(again.inner_text("#status").split(",")[0].removeprefix("Step ")) >= step
    third = show()
    third.wait_for_selector("#kept:not([hidden])")
    third.click("#discard")
    third.wait_for_selector("#kept", state="hidden")


def test_bad_input_is_one_line_and_the_rest_stays(show: Open) -> None:
    page = show()
    fill_in(page, table())
    for text, message in [
        (" \n", "There is no row"),
        ("one\ntwo", "one column only"),
    ]:
        page.fill("#text", text)
        page.locator("#fault", has_text=message).wait_for()
    page.fill("#text", "a\tb\nc\td")
    page.wait_for_selector("#found:not([hidden])")
    page.click("#train")
    page.locator("#fault", has_text="too few").wait_for()
    assert "Too few pairs: 2; give 50" in page.inner_text("#fault")
    page.fill("#text", "<img src=x onerror=alert(1)>\t<b>كتاب</b>\nx\ty")
    page.locator("#examples", has_text="<img").wait_for()
    page.click("#swap")
    page.locator("#examples td", has_text="<img").and_(page.locator("td:last-child")).wait_for()
    page.fill("#minutes", "-1")
    page.click("#train")
    page.locator("#fault", has_text="Minutes").wait_for()


def test_two_models_learn_side_by_side(show: Open) -> None:
    page = show("#tab=dials&lang=en&a=task:reverse,steps:50&b=task:repeat,layers:2,steps:50")
    sides = page.locator("#sides > section")
    assert sides.count() == 2
    for side in (sides.first, sides.last):
        side.locator("button.first").click()
    for side in (sides.first, sides.last):
        side.locator(".runs td:last-child:text-matches('%')").wait_for()
        side.locator(".answer:text-matches('it writes')").wait_for()
    assert "Cross-attention" in sides.first.locator(".maps").inner_text()
    assert "Head" in sides.last.locator(".induction").inner_text()
    looks = sides.first.locator(".looks")
    looks.fill("0")
    sides.first.get_by_text("Attention at step 0").wait_for()
    looks.fill(looks.evaluate("slider => slider.max"))
    sides.first.get_by_text("Attention at step 50").wait_for()
    sides.first.locator("[name=mask]").uncheck()
    sides.first.locator("[data-dial=width]").select_option("64")
    state = page.evaluate("decodeURIComponent(location.hash)")
    assert "a=task:reverse,width:64,steps:50,without:mask" in state


def test_an_existing_file_is_replaced_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "page.html"
    file.write_text("mine")
    assert main(["page", str(file)]) == 1
    assert "exists; --again replaces it" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert main(["page", str(file), "--again"]) == 0
    assert file.read_text() == learner_page()


def test_the_page_stays_free_while_it_learns(browser: Any, show: Open) -> None:
    page = show()
    fill_in(page, table(), "0.2")
    browser.start_tracing(page=page, categories=["toplevel"])
    page.click("#train")
    page.wait_for_selector("#report:not([hidden])")
    events = json.loads(browser.stop_tracing())["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    tasks = [e for e in events if e["name"].endswith("RunTask") and "tdur" in e]
    main = [e["tdur"] for e in tasks if names.get((e["pid"], e["tid"])) == "CrRendererMain"]
    assert len(main) > 20
    assert max(main) / 1000 <= MOST_OF_A_TASK


@pytest.mark.slow
def test_both_tabs_are_accessible(show: Open, tmp_path: Path) -> None:
    axe = node_with(tmp_path, "axe-core@4.10.3") / "node_modules" / "axe-core" / "axe.min.js"
    page = show("#tab=dials&a=task:agreement,steps:50&b=task:repeat,steps:50")
    page.add_script_tag(content=axe.read_text(encoding="utf-8"))
    for side in page.locator("#sides > section").all():
        side.locator("button.first").click()
        side.locator(".runs td:last-child:text-matches('%')").wait_for()
    broken = page.evaluate(FAULTS)
    page.click("#tab-table")
    fill_in(page, table())
    page.click("#train")
    page.wait_for_selector("#report:not([hidden])")
    page.fill("#asked", "abc")
    page.wait_for_selector("#candidates tbody tr")
    assert broken + page.evaluate(FAULTS) == []


@pytest.mark.parametrize("at", ["#lang=zh", "#lang=zh&tab=dials"])
def test_it_fits_a_phone(show: Open, at: str) -> None:
    page = show(at)
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.lang") == "zh"
    assert page.evaluate("document.documentElement.scrollWidth") == 390
