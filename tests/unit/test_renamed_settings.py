"""Old spellings of settings are read as the new ones, and warned of once where users write them."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.tiny_run import tiny_settings
from transduce import SettingError, renamed_settings
from transduce.config import to_toml
from transduce.recipes import as_recipe, read_recipe
from transduce.tasks.common import base_settings


@pytest.fixture(autouse=True)
def nothing_warned_of_yet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    renamed_settings._warn_once.cache_clear()
    with caplog.at_level(logging.WARNING, "transduce"):
        yield


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage() for record in caplog.records if "old spelling" in record.getMessage()
    ]


def settings(kind: str, **model: str) -> dict[str, Any]:
    given = tiny_settings(Path("pairs.tsv"))
    given["model"] |= {"encoder": {"kind": kind, "widths": [2, 3]}, **model}
    return given


def old() -> dict[str, Any]:
    return settings("windows", first_weights="normal")


def new() -> dict[str, Any]:
    return settings("text-cnn", init="normal")


def test_a_recipe_with_old_spellings_is_read_with_one_warning_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "old.toml"
    file.write_text(to_toml(old()), encoding="utf-8")
    wanted, _ = as_recipe(new(), [])
    assert not warned(caplog)
    for recipe in (file, file, old()):
        assert as_recipe(recipe, [])[0] == wanted
    first, kind = warned(caplog)
    assert first.startswith("model.first_weights has been renamed to model.init;")
    assert kind.startswith("model.encoder.kind = 'windows' has been renamed to 'text-cnn';")


@pytest.mark.parametrize("value", ["windows", '"windows"', "'windows'"])
def test_overrides_with_old_spellings(value: str, caplog: pytest.LogCaptureFixture) -> None:
    wanted, _ = as_recipe(new(), [])
    given = settings("text-cnn", init="xavier")
    overrides = [" model . first_weights = 'normal'", f"model.encoder.kind={value}"]
    assert as_recipe(given, overrides)[0] == wanted, "widths stay, as the kind is the same"
    whole = 'model.encoder={kind="windows", widths=[2, 3]}'
    assert as_recipe(settings("recurrent", init="normal"), [whole])[0] == wanted
    assert "model.first_weights has been renamed to model.init" in " ".join(warned(caplog))


def test_a_run_of_before_is_read_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted, _ = as_recipe(new(), [])
    text = to_toml(wanted).replace("init =", "first_weights =").replace("text-cnn", "windows")
    (tmp_path / "recipe.toml").write_text(text, encoding="utf-8")
    assert read_recipe(tmp_path) == wanted
    assert base_settings(tmp_path)["model"]["init"] == "normal"
    assert base_settings(tmp_path)["model"]["encoder"]["kind"] == "text-cnn"
    assert not warned(caplog)


def test_a_setting_under_both_names_is_refused() -> None:
    both = settings("text-cnn", init="normal", first_weights="normal")
    with pytest.raises(SettingError, match=r"first_weights is the old name of model\.init; set"):
        as_recipe(both, [])


@pytest.mark.parametrize("model", [None, 3, {"encoder": 3}, {"encoder": {"kind": []}}])
def test_what_is_no_section_is_left_to_the_parser(model: Any) -> None:
    given = {"task": "translation", "model": model}
    assert renamed_settings.with_new_names(given) == given
