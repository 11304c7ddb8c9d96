"""docs/recipe.md names every setting of a recipe, with its right default, and its examples work.

Its Chinese twin has the same settings and defaults.
"""

import dataclasses
import re
import tomllib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from transduce.models.config import ENCODER_PRESETS, PRESETS
from transduce.models.decoder_only import DECODER_PRESETS
from transduce.settings.sections import setting_names, to_dict
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.vision.vit import VISION_PRESETS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "recipe.md").read_text(encoding="utf-8")
CHINESE = (DOCS / "recipe.zh.md").read_text(encoding="utf-8")
IN_ENGLISH = {"必填": "required", "不设": "unset", "节": "section"}
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)

Table = dict[str, str]
Key = tuple[str, str]
"""Dotted name of a section, and its kind ("" where there is only one)."""


def tables(page: str = PAGE) -> dict[Key, Table]:
    """The tables of a page: setting -> default as printed."""
    result: dict[Key, Table] = {}
    for part in re.split(r"^### ", page, flags=re.MULTILINE):
        heading, _, body = part.partition("\n")
        kind = re.search(r'`kind = "([^"]+)"`', heading)
        rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", body, flags=re.MULTILINE)
        for name in re.findall(r"`\[([\w.]*)\]`", heading):
            key = (name, kind[1] if kind else "")
            assert key not in result, f"{key} has two tables"
            assert len(rows) == len(dict(rows)), f"{key} names a setting twice"
            result[key] = dict(rows)
    return result


def members(hint: Any) -> list[type]:
    """The sections that a setting of this type can be; none for a plain value."""
    if typing.get_origin(hint) is typing.Annotated:
        return members(typing.get_args(hint)[0])
    if typing.get_origin(hint) is tuple:  # a list of them
        return members(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(hint) for member in members(part)]
    return [hint] if isinstance(hint, type) and dataclasses.is_dataclass(hint) else []


def first_kind(section: type) -> str:
    """The value of `kind` that a section has by default, or else the first of those it can have."""
    default = {field.name: field.default for field in dataclasses.fields(section)}["kind"]
    return str(
        typing.get_args(typing.get_type_hints(section)["kind"])[0]
        if default is dataclasses.MISSING
        else default
    )


def sections(kind: type, name: str = "", several: bool = False) -> Iterator[tuple[Key, type]]:
    """Every section below `kind`, itself included, as the page has to show it."""
    hints = typing.get_type_hints(kind, include_extras=True)
    yield (name, first_kind(kind) if several else ""), kind
    for field in hints:
        inner = members(hints[field])
        for one in inner:
            yield from sections(one, f"{name}.{field}".lstrip("."), len(inner) > 1)


SECTIONS = dict(sections(TranslationRecipe))


def test_every_section_has_a_table_and_every_table_a_section() -> None:
    assert set(tables()) == set(SECTIONS)


def test_the_chinese_page_has_no_other_settings_and_defaults() -> None:
    """A new setting may wait for its translation; a wrong or removed one is an error."""
    english = tables()
    for key, table in tables(CHINESE).items():
        for name, default in table.items():
            assert english[key].get(name) == IN_ENGLISH.get(default, default), (key, name)


@pytest.mark.parametrize("key", SECTIONS, ids=" ".join)
def test_settings_and_defaults(key: Key) -> None:
    table = tables()[key]
    fields = {field.name: field for field in dataclasses.fields(SECTIONS[key])}
    assert set(table) == set(fields)
    for name, printed in table.items():
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


def test_every_setting_name_is_on_the_page() -> None:
    named = {
        f"{section}.{setting}".lstrip(".")
        for (section, _), table in tables().items()
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
