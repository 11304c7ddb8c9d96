"""Tables of the settings of a recipe, from the docstrings of their sections.

    python docs/settings.py                       every table
    python docs/settings.py training.optimizer    those of a section

`make docs` puts each table at the end of its part of recipe.md.
"""

import dataclasses
import re
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any

import tomli_w

from transduce.settings.sections import field_help, to_dict
from transduce.tasks.translation.recipe import TranslationRecipe

Key = tuple[str, str]
"""Dotted name of a section, and its kind ("" if it has only one)."""

PART = re.compile(r"^### .*?(?=^### |^<a id=|\Z)", re.MULTILINE | re.DOTALL)


def members(hint: Any) -> list[type]:
    """Sections that a setting of this type can be; none for a plain value."""
    if typing.get_origin(hint) in (typing.Annotated, tuple):  # a tuple: a list of sections
        return members(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [member for part in typing.get_args(hint) for member in members(part)]
    return [hint] if isinstance(hint, type) and dataclasses.is_dataclass(hint) else []


def values_of(hint: Any) -> tuple[Any, ...]:
    """Values of a setting with a closed list of them; else none."""
    if typing.get_origin(hint) is typing.Annotated:
        return values_of(typing.get_args(hint)[0])
    return typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()


def hints_of(section: type) -> dict[str, Any]:
    """Types of the settings of a section."""
    return typing.get_type_hints(section, include_extras=True)


def sections(section: type, name: str = "", several: bool = False) -> Iterator[tuple[Key, type]]:
    """Stream a section and every section below, with their keys.

    several: whether `name` has sections of several kinds.
    """
    hints = hints_of(section)
    yield (name, values_of(hints["kind"])[0] if several else ""), section
    for field in dataclasses.fields(section):
        inner = members(hints[field.name])
        for member in inner:
            yield from sections(member, f"{name}.{field.name}".lstrip("."), len(inner) > 1)


SECTIONS = dict(sections(TranslationRecipe))


def as_toml(value: Any) -> str:
    """Write a value as in a recipe, in one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()


def default_of(field: Any) -> str:
    """Cell of the default: a value, or a word for none."""
    if field.default is dataclasses.MISSING:
        return "required"
    if field.default is None:
        return "unset"
    if dataclasses.is_dataclass(field.default):
        return "section"
    return f"`{as_toml(to_dict(field.default))}`"


def meaning_of(section: type, name: str) -> str:
    """Cell of the meaning: values to choose from, and the docstring under the field."""
    hint, text = hints_of(section)[name], field_help(section).get(name, "")
    if name == "kind" and not text:
        text = " ".join((section.__doc__ or "").split("\n\n")[0].split())
    if sections_of_it := members(hint):
        kinds = "Section" if len(sections_of_it) == 1 else "Section of one of the kinds below"
        text = f"{kinds}.  {text}"
    values = ", ".join(f"`{as_toml(value)}`" for value in values_of(hint))
    if values and (name != "kind" or len(values_of(hint)) > 1):
        text = f"{values}: {text}" if text else values
    parts = text.replace("  ", " ").replace("|", "\\|").strip().removesuffix(".").split("`")
    parts[::2] = [part.replace("<", "\\<") for part in parts[::2]]  # outside of code
    return "`".join(parts)


def table(section: type) -> str:
    """Table of the settings of a section in Markdown."""
    fields = sorted(dataclasses.fields(section), key=lambda field: field.name != "kind")
    rows = [
        f"| `{field.name}` | {default_of(field)} | {meaning_of(section, field.name)} |"
        for field in fields
    ]
    return "\n".join(["| setting | default | meaning |", "|-|-|-|", *rows])


def keys_of(heading: str) -> list[Key]:
    """Sections that a heading names."""
    kind = re.search(r'`kind = "([^"]+)"`', heading)
    return [(name, kind[1] if kind else "") for name in re.findall(r"`\[([\w.]*)\]`", heading)]


def filled(page: str) -> str:
    """The page with the table of its section at the end of each part that names one."""

    def with_table(part: re.Match[str]) -> str:
        keys = keys_of(part[0].partition("\n")[0])
        if not keys:
            return part[0]
        return f"{part[0].rstrip()}\n\n{table(SECTIONS[keys[0]])}\n\n"

    return PART.sub(with_table, page)


if __name__ == "__main__":
    wanted = [key for key in SECTIONS if len(sys.argv) == 1 or key[0] in sys.argv[1:]]
    if not wanted:
        names = ", ".join(sorted({name for name, _ in SECTIONS} - {""}))
        sys.exit(f"no such section; there are {names}")
    for name, kind in wanted:
        print(f"[{name}]{f' kind = {kind}' if kind else ''}\n\n{table(SECTIONS[name, kind])}\n")
