"""A recipe names its languages; `evaluation.target_language` goes on to work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.tiny_run import reversal_pairs, tiny_recipe, train_tiny, write_tsv
from transduce import SettingError
from transduce.settings.sections import parse, to_dict
from transduce.tasks.translation.recipe import TranslationRecipe

DATA = Path("none.tsv")


def recipe(*overrides: str) -> TranslationRecipe:
    return tiny_recipe(DATA, *overrides)


@pytest.mark.parametrize(
    ("overrides", "sources", "targets", "measured"),
    [
        ((), (), (), ""),
        (("evaluation.target_language=zh",), (), ("zh",), "zh"),
        (("languages.source=en", "languages.target=pt-BR"), ("en",), ("pt-BR",), "pt-BR"),
        (('languages.target=["de","zh"]', 'languages.source=["en"]'), ("en",), ("de", "zh"), ""),
        (('languages.target=["de","zh"]', "evaluation.target_language=zh"), (), ("de", "zh"), "zh"),
    ],
)
def test_languages(overrides: tuple[str, ...], sources: Any, targets: Any, measured: str) -> None:
    result = recipe(*overrides)
    assert result.languages.sources == sources
    assert (result.target_languages, result.target_language) == (targets, measured)
    assert parse(TranslationRecipe, to_dict(result)) == result


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ("languages.source=English language",),
            r"languages\.source: 'English language' is not a language code",
        ),
        (('languages.target=["de", "x"]',), r"languages\.target: 'x' is not a language code"),
        (
            ("languages.target=de", "evaluation.target_language=fr"),
            r"target_language = 'fr' is not in languages\.target = de; remove it",
        ),
    ],
)
def test_mistakes(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        recipe(*overrides)


def test_a_run_shows_and_uses_them(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "a.tsv", reversal_pairs(50))
    settings = ("training.steps=1", "languages.source=en", "languages.target=zh")
    run = transduce.load(train_tiny(data, tmp_path / "run", *settings)[0], "cpu")
    info = run.info()
    assert (info["source_languages"], info["target_languages"]) == (["en"], ["zh"])
    assert run.translator.config.target_language == "zh"
    assert run.evaluate(examples=[("ab", "b a")]).language == "zh"
