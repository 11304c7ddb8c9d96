"""Tables of settings in docs/recipe.md: made from the sections, whole, and its examples work."""

import dataclasses
import re
import runpy
import tomllib
from pathlib import Path

import pytest

from transduce.models.config import ENCODER_PRESETS, PRESETS
from transduce.models.decoder_only import DECODER_PRESETS
from transduce.settings.sections import setting_names, to_dict
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.vision.vit import VISION_PRESETS

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = runpy.run_path(str(DOCS / "settings.py"))
SOURCE = (DOCS / "recipe.md").read_text(encoding="utf-8")
PAGE = SCRIPT["filled"](SOURCE)
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", re.MULTILINE)

Row = tuple[str, str]
"""Default and meaning, as printed."""
Key = tuple[str, str]
"""Dotted name of a section, and its kind ("" if it has only one)."""


def tables() -> dict[Key, dict[str, Row]]:
    """Tables of the page."""
    result: dict[Key, dict[str, Row]] = {}
    for part in re.split(r"^### ", PAGE, flags=re.MULTILINE):
        heading, _, body = part.partition("\n")
        kind = re.search(r'`kind = "([^"]+)"`', heading)
        rows = {name: (default, meaning) for name, default, meaning in ROW.findall(body)}
        for name in re.findall(r"`\[([\w.]*)\]`", heading):
            key = (name, kind[1] if kind else "")
            assert key not in result, f"{key} has two tables"
            result[key] = rows
    return result


SECTIONS = SCRIPT["SECTIONS"]
TABLES = tables()


def test_every_section_has_a_table_and_every_table_a_section() -> None:
    assert set(TABLES) == set(SECTIONS)


def test_sections_under_one_heading_are_the_same() -> None:
    for heading in re.findall(r"^### (.*)$", PAGE, flags=re.MULTILINE):
        assert len({SECTIONS[key] for key in SCRIPT["keys_of"](heading)}) <= 1, heading


def test_the_page_itself_has_no_table_of_settings() -> None:
    assert "| setting | default | meaning |" not in SOURCE


@pytest.mark.parametrize("key", SECTIONS, ids=" ".join)
def test_settings_defaults_and_meanings(key: Key) -> None:
    table = TABLES[key]
    fields = {field.name: field for field in dataclasses.fields(SECTIONS[key])}
    assert set(table) == set(fields)
    for name, (printed, meaning) in table.items():
        assert meaning.strip(), f"{name} of {SECTIONS[key].__name__} has no docstring"
        default = fields[name].default
        if default is dataclasses.MISSING:
            assert printed == "required", name
        elif default is None:
            assert printed == "unset", name
        elif dataclasses.is_dataclass(default):
            assert printed == "section", name
        else:
            value = tomllib.loads(f"value = {printed.strip('`')}")["value"]
            assert value == to_dict(default), name
            assert isinstance(value, bool) == isinstance(default, bool), name


def test_values_to_choose_from_are_in_the_table() -> None:
    assert TABLES["training", ""]["precision"][1].startswith('`"float32"`, `"bf16"`: ')


def test_every_setting_name_is_on_the_page() -> None:
    named = {
        f"{section}.{setting}".lstrip(".")
        for (section, _), table in TABLES.items()
        for setting in table
    }
    assert named == set(setting_names(TranslationRecipe))


def test_presets_are_named() -> None:
    tables = (PRESETS, ENCODER_PRESETS, DECODER_PRESETS, VISION_PRESETS)
    names = [name for table in tables for name in table]
    assert [name for name in names if f'`"{name}"`' not in PAGE] == []
    assert PRESETS["paper-base"] == TranslationRecipe.model, "the page calls them equal"


def test_there_are_examples_of_every_kind_of_pairs() -> None:
    kinds = {tomllib.loads(example)["data"]["train"]["kind"] for example in EXAMPLES}
    assert kinds == {kind for name, kind in SECTIONS if name == "data.train"}
