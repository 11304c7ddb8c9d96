"""docs/libretranslate.md and docs/weblate.md: their blocks as printed, against a folder of three
models; and the requests of Weblate's machinery."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.served import Served, served
from transduce.serve.runs import read_specs

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "marian"
RUN = ROOT / "tests" / "runs" / "0.1.0" / "translation"
PAGES = ("libretranslate.md", "weblate.md")


def blocks(page: str, language: str) -> list[str]:
    """Code of a page in a language, without its indentation."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    return [re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found]


def commands(page: str, program: str) -> list[str]:
    return [
        line
        for block in blocks(page, "sh")
        for line in block.splitlines()
        if line.startswith(f"{program} ")
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As in the page: two models of Firefox and a run."""
    models = tmp_path_factory.mktemp("guide") / "models"
    for pair in ("enpt", "deen"):
        (models / pair).mkdir(parents=True)
        shutil.copy(GOLDEN / "attention.bin", models / pair / f"model.{pair}.intgemm.alphas.bin")
        shutil.copy(GOLDEN / "vocab.spm", models / pair / f"vocab.{pair}.spm")
    run = shutil.copytree(RUN, models / "de-fr")
    with (run / "recipe.toml").open("a") as recipe:
        recipe.write('\n[languages]\nsource = "de"\ntarget = "fr"\n')
    return models


@pytest.fixture(scope="module", params=PAGES)
def guide(request: pytest.FixtureRequest, folder: Path) -> Iterator[tuple[str, Served]]:
    """A page, and the server of its command."""
    (command,) = commands(request.param, "transduce")
    words = [str(folder) if word == "models" else word for word in shlex.split(command)[2:]]
    with served(*words) as server:
        yield request.param, server


def test_each_block_answers(guide: tuple[str, Served], capsys: pytest.CaptureFixture[str]) -> None:
    page, server = guide
    asked = commands(page, "curl")
    assert len(asked) >= 3
    for command in asked:
        printed = subprocess.run(
            shlex.split(command.replace("localhost:5000", server.url.removeprefix("http://"))),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert re.search(r'"(translatedText|code|language|charLimit)":', printed), command
        assert ('"via":["en"]' in printed) == ('"source": "de", "target": "pt"' in command)
    for code in blocks(page, "python"):
        pytest.importorskip("libretranslatepy")
        exec(code.replace("http://localhost:5000/", f"{server.url}/"), {})
        codes, translation = capsys.readouterr().out.splitlines()
        assert codes == "['en', 'fr', 'de', 'pt']" and translation


def test_weblate_saves_its_settings_and_fills_a_component(folder: Path) -> None:
    """Each request of `LibreTranslateTranslation` of Weblate 5.17, with what it does to answers."""
    keys = folder.parent / "keys"
    keys.write_text("secret\n")
    with served(folder, "--pivot", "en", "--pass-through", "--api-keys", keys) as server:
        status, languages = server.ask("/languages")
        codes = {language["code"] for language in languages}
        assert status == 200 and codes == {"en", "pt", "de", "fr"}

        def suggested(texts: list[str], source: str, target: str) -> list[str]:
            body = {"api_key": "secret", "q": texts, "source": source, "target": target}
            status, payload = server.ask("/translate", body, Accept="application/json")
            assert status == 200, payload
            translated = payload["translatedText"]
            assert isinstance(translated, list) and len(translated) == len(texts)
            return translated

        assert suggested(["test"], "en", "de") == ["test"]  # when the settings are saved
        texts = [f"ab [X{i}X] ba" for i in range(20)]
        for pair in (("en", "pt-BR"), ("de", "pt"), ("de", "fr")):
            for text, translation in zip(texts, suggested(texts, *pair), strict=True):
                (mark,) = re.findall(r"\[X\d+X\]", text)
                assert translation.count(mark) == 1
        refused = {"api_key": "", "q": ["a"], "source": "en", "target": "pt"}
        assert server.ask("/translate", refused)[0] in (400, 401, 403)


def test_the_folder_of_the_page_is_what_it_says(folder: Path) -> None:
    pairs = [spec.pairs for spec in read_specs([folder])]
    assert pairs == [(("de", "fr"),), (("de", "en"),), (("en", "pt"),)]
