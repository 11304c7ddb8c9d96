"""Recipes of the package: listed, printed, and carried by the wheel."""

import re
import tomllib
from pathlib import Path

import pytest

from transduce.cli.main import main
from transduce.recipes import parse_recipe, recipe_names, recipe_text

ROOT = Path(__file__).parents[2]


def test_every_recipe_is_listed_with_a_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == recipe_names()
    assert all(len(line.split()) > 3 for line in lines)
    assert len(lines) == len(list((ROOT / "recipes").rglob("*.toml")))


def test_a_recipe_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "translation/multi30k-en-de"]) == 0
    printed = capsys.readouterr().out
    assert printed == (ROOT / "recipes/translation/multi30k-en-de.toml").read_text(encoding="utf-8")
    assert tomllib.loads(recipe_text("translation/multi30k-en-de.toml"))["task"] == "translation"


def test_an_unknown_name_gets_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", "translation/multi30k-en-dee"]) == 1
    message = capsys.readouterr()
    assert message.out == "" and "did you mean 'translation/multi30k-en-de'?" in message.err


@pytest.fixture
def data_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "TRANSDUCE_DATA",
        "SYNTHETIC_SPEECH",
        "SPOKEN_DIGITS",
        "SENTENCES",
        "DIGIT_STRINGS",
        "CORPORA",
    ):
        monkeypatch.setenv(name, "/nowhere")


@pytest.mark.usefixtures("data_somewhere")
@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_parses(name: str) -> None:
    """Without the base run of fine-tuning, which other tests give."""
    settings = tomllib.loads(recipe_text(name))
    settings.pop("fine_tune", None)
    assert parse_recipe(settings, name).task == settings["task"]


EXAMPLES = {
    f"{path.name} {i}": settings
    for path in sorted([*ROOT.glob("README*.md"), *(ROOT / "docs").rglob("*.md")])
    for i, settings in enumerate(
        map(tomllib.loads, re.findall(r"```toml\n(.*?)```", path.read_text("utf-8"), re.DOTALL))
    )
    if "task" in settings
}


@pytest.mark.usefixtures("data_somewhere")
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_pages_are_recipes(name: str) -> None:
    settings = dict(EXAMPLES[name])
    if settings.pop("fine_tune", None) and settings["task"].startswith("image"):
        settings["image"] = {"size": 32}
    assert parse_recipe(settings, name).task == settings["task"]


def test_an_installation_without_recipes_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("transduce.recipes.recipe_names", list)
    assert main(["recipes"]) == 1
    result = capsys.readouterr()
    assert result.out == "" and "carries no recipes" in result.err
