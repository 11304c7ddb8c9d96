"""An exported page in a real browser: from disk, without a network."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.browser import Open, needs_chromium, opened_files
from helpers.reversing_run import reversing_run
from helpers.text_to_text import made
from helpers.web import COMPILING, needs_wasm
from transduce.cli.demo import DEMOS, demo_recipe
from transduce.recipes import parse_recipe
from transduce.runs.exporting import export_run
from transduce.runs.importing import import_run

pytestmark = [needs_chromium, needs_wasm, pytest.mark.timeout(COMPILING)]

RUN = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"
TEXT = "a good hat"


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page offline; its console must stay empty, and nothing but the file be read."""
    complaints: list[str] = []
    fetched: list[str] = []
    contexts = []
    file = export_run(RUN, tmp_path / "page.html", "float32", "html")

    def open_page(**settings: Any) -> Any:
        context = browser.new_context(**{"locale": "en-GB", "offline": True, **settings})
        contexts.append(context)
        context.set_default_timeout(8000)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert {url for url in fetched if not url.startswith("blob:")} == {file.as_uri()}


@pytest.fixture
def open_file(browser: Any) -> Iterator[Open]:
    """Opens files offline; their console must stay empty, and nothing else be read."""
    with opened_files(browser, timeout=30_000, offline=True) as opened:
        yield opened


def typed(page: Any, text: str) -> None:
    page.locator("#typed").fill(text)
    page.locator(".token").first.wait_for()


def test_it_translates_as_one_types(show: Callable[..., Any]) -> None:
    page = show()
    right = transduce.load(RUN, "cpu")(TEXT)
    typed(page, TEXT)
    assert page.locator("#written").inner_text() == right.text
    answer = page.evaluate("text => transduce.translate(text)", TEXT)
    assert answer["text"] == right.text
    assert answer["score"] == pytest.approx(right.score, abs=1e-4)
    assert page.locator("tbody tr").count() == right_beam()
    assert page.locator("tbody td").first.inner_text() == right.text
    assert "float32" in page.locator("#weight").inner_text()
    page.locator("#typed").fill("")
    page.locator("#attended").wait_for(state="hidden")
    assert page.locator("#written").inner_text() == ""


def right_beam() -> int:
    return min(5, transduce.load(RUN, "cpu").translator.options.beam_size)


def test_a_word_shows_where_the_model_looked(show: Callable[..., Any]) -> None:
    page = show()
    typed(page, TEXT)
    rows = page.locator(".pair > div")
    word = rows.last.locator(".token").first
    word.click()
    assert word.get_attribute("aria-pressed") == "true"
    shades = [
        button.evaluate("button => Number(button.style.background.match(/,\\s*([\\d.]+)\\)/)[1])")
        for button in rows.first.locator(".token").all()
    ]
    assert 0 < sum(shades) <= 0.76
    word.click()
    assert word.get_attribute("aria-pressed") == "false"


def greedy_run(directory: Path, source: str, target: str) -> Path:
    shutil.copytree(RUN, directory)
    recipe = (directory / "recipe.toml").read_text()
    recipe = re.sub(r"beam_size = \d+", "beam_size = 1", recipe)
    languages = f'\n[languages]\nsource = "{source}"\ntarget = "{target}"\n'
    (directory / "recipe.toml").write_text(recipe + languages)
    return directory


def test_languages_that_browsers_cannot_name_stand_as_their_codes(
    open_file: Open, tmp_path: Path
) -> None:
    codes = demo_languages()
    assert {"en-x-arpabet", "zh-Latn-pinyin"} <= {target for _, target in codes}
    runs = [
        greedy_run(tmp_path / str(k), *pair) for k, pair in enumerate([*codes, ("deu_Latn", "en")])
    ]
    files = [export_run(run, tmp_path / f"{run.name}.html", "int8", "html") for run in runs]
    for file in files:
        page = open_file(file)
        typed(page, TEXT)
        page.get_by_role("button", name="中文").click()
        page.locator("#took", has_text="用时").wait_for()
        assert page.locator("#written").inner_text() != ""
    page = open_file(files[0])
    for number, file in enumerate(files[1:], 2):
        page.locator("#file").set_input_files(file)
        page.wait_for_function(
            "count => document.querySelectorAll('#path option').length >= count", arg=number
        )
    options = page.locator("#path option").all_inner_texts()
    assert "English → en-x-arpabet" in options and "deu_Latn → English" in options


def demo_languages() -> list[tuple[str, str]]:
    """Languages of the demos' runs."""
    recipes = (demo_recipe(demo, Path("data"), None) for demo in DEMOS.values())
    pairs = (parse_recipe(recipe, "demo").languages for recipe in recipes)  # type: ignore[attr-defined]
    return [(pair.source, pair.target) for pair in pairs if pair.source]


def test_letters_unknown_to_the_model_are_named(open_file: Open, tmp_path: Path) -> None:
    run = reversing_run(tmp_path).path
    page = open_file(export_run(run, tmp_path / "page.html", "int8", "html"))
    typed(page, "ab")
    assert page.locator("#unknown").inner_text() == ""
    page.locator("#typed").fill("aяb\nжяc")
    page.locator("#unknown", has_text="Unknown to the model: я ж").wait_for()
    page.get_by_role("button", name="中文").click()
    page.locator("#unknown", has_text="模型不认识：я ж").wait_for()
    page.locator("#typed").fill("ab")
    page.wait_for_function("() => document.querySelector('#unknown').textContent === ''")
    (tmp_path / "note.txt").write_text("abc\nя\n", encoding="utf-8")
    page.locator("#file").set_input_files(tmp_path / "note.txt")
    page.locator("#unknown", has_text="模型不认识：я").wait_for()


def test_files_a_second_model_and_a_beam(open_file: Open, tmp_path: Path) -> None:
    first, second = (greedy_run(tmp_path / t, s, t) for s, t in (("en", "pt"), ("pt-BR", "de")))
    files = [
        export_run(run, tmp_path / f"{run.name}.html", "int8", "html") for run in (first, second)
    ]
    runs = [transduce.load(run, engine="native", precision="int8") for run in (first, second)]
    page = open_file(files[0], accept_downloads=True)
    typed(page, TEXT)
    assert page.locator("#written").inner_text() == runs[0](TEXT).text
    assert page.locator("#ways").is_hidden() and page.locator("tbody tr").count() == 0
    page.locator("#wider").click()
    page.locator("tbody tr").nth(1).wait_for()
    beam = runs[0](TEXT, beam_size=5, n_best=5)
    assert page.locator("tbody td:first-child").all_inner_texts() == [
        candidate.text for candidate in beam.candidates
    ]
    (tmp_path / "note.txt").write_bytes(b"a good hat\r\n\nhat good\n")
    page.locator("#file").set_input_files(tmp_path / "note.txt")
    with page.expect_download() as download:
        page.locator("#saved a").click()
    assert download.value.suggested_filename == "note.pt.txt"
    words = [runs[0](line).text for line in ("a good hat", "hat good")]
    written = Path(download.value.path()).read_bytes().decode()
    assert written == f"{words[0]}\r\n\n{words[1]}\n"
    page.locator("#file").set_input_files(files[1])
    page.locator("#between", has_text="In between").wait_for()
    assert page.locator("#path option").all_inner_texts() == [
        "English → Portuguese",
        "Brazilian Portuguese → German",
        "English → Portuguese → German",
    ]
    assert page.locator("#written").inner_text() == runs[1](runs[0](TEXT).text).text
    page.locator("#path").select_option("0")
    page.locator("#between:empty").wait_for(state="attached")
    assert page.locator("#written").inner_text() == runs[0](TEXT).text
    (tmp_path / "junk.model.gz").write_bytes(b"\x1f\x8bjunk")
    page.locator("#file").set_input_files(tmp_path / "junk.model.gz")
    page.locator("#fault", has_text="not a model of transduce").wait_for()


def drop(page: Any, file: Path) -> None:
    """Drop a file on the page, as a hand does."""
    content = base64.b64encode(file.read_bytes()).decode()
    transfer = page.evaluate_handle(
        """([name, content]) => {
          const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
          const transfer = new DataTransfer();
          transfer.items.add(new File([bytes], name));
          return transfer;
        }""",
        [file.name, content],
    )
    page.dispatch_event("main", "drop", {"dataTransfer": transfer})


@pytest.mark.parametrize("form", ["html", "npm"])
def test_a_dropped_model_joins_through_english(open_file: Open, form: Any, tmp_path: Path) -> None:
    first, second = (greedy_run(tmp_path / t, s, t) for s, t in (("de", "en"), ("en", "pt")))
    page_file = export_run(first, tmp_path / "de-en.html", "int8", "html")
    suffix = {"html": ".html", "npm": ".transduce"}[form]
    other = export_run(second, tmp_path / f"en-pt{suffix}", "int8", form)
    runs = [transduce.load(run, engine="native", precision="int8") for run in (first, second)]
    page = open_file(page_file, permissions=["clipboard-read", "clipboard-write"])
    page.evaluate("text => navigator.clipboard.writeText(text)", TEXT)
    page.get_by_role("button", name="Paste").click()
    page.locator(".token").first.wait_for()
    assert page.locator("#typed").input_value() == TEXT
    assert page.locator("#written").inner_text() == runs[0](TEXT).text
    drop(page, other)
    page.locator("#between", has_text="In between").wait_for()
    assert page.locator("#path option").all_inner_texts() == [
        "German → English",
        "English → Portuguese",
        "German → English → Portuguese",
    ]
    read = runs[0](TEXT).text
    assert page.locator("#between").inner_text() == f"In between: {read}"
    assert page.locator("#written").inner_text() == runs[1](read).text


def test_a_clipboard_that_gives_nothing_is_said(open_file: Open, tmp_path: Path) -> None:
    file = export_run(RUN, tmp_path / "page.html", "int8", "html")
    page = open_file(file)
    page.evaluate("void (navigator.clipboard.readText = () => Promise.reject(new Error('no')))")
    page.locator("#paste").click()
    page.locator("#fault", has_text="gives no text of the clipboard").wait_for()


def test_a_model_of_several_languages_asks_for_two(open_file: Open, tmp_path: Path) -> None:
    made("nllb", tmp_path / "saved")
    run = import_run(tmp_path / "saved", tmp_path / "run")
    file = export_run(run, tmp_path / "page.html", "int8", "html")
    native = transduce.load(run, engine="native", precision="int8")
    page = open_file(file)
    page.locator("#pair").wait_for()
    assert page.locator("#path").is_hidden()
    page.get_by_label("Source language").select_option("fr")
    page.get_by_label("Target language").select_option("zh-Hant")
    page.locator("#typed").fill("ab cd.")
    page.locator(".token").first.wait_for()
    right = native.between("fr", "zh-Hant")("ab cd.").text
    page.wait_for_function(
        "text => document.querySelector('#written').innerText === text", arg=right
    )
    answer = page.evaluate("transduce.translate('ab cd.', { from: 'fr', to: 'zh-Hant' })")
    assert answer["text"] == right


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen_in_both_languages(
    show: Callable[..., Any], width: int, scheme: str
) -> None:
    page = show(viewport={"width": width, "height": 900}, color_scheme=scheme, locale="zh-CN")
    typed(page, " ".join([TEXT] * 12))
    assert "不需要网络" in page.locator("#label").inner_text()
    assert not page.evaluate("() => document.documentElement.scrollWidth > innerWidth")
    page.get_by_role("button", name="English").click()
    assert "without a network" in page.locator("#label").inner_text()
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
