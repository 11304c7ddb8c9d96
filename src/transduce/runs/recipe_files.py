"""Recipes that come with the package: their names, and their text."""

from __future__ import annotations

import difflib
from importlib.resources import files
from pathlib import Path

from transduce.errors import DataError


def recipe_names() -> list[str]:
    """Names such as `translation/multi30k-en-de`, sorted."""
    root = _directory()
    return sorted(
        path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.toml")
    )


def recipe_text(name: str) -> str:
    """Text of a recipe, with the comment at its head.  Raises DataError for an unknown name."""
    names = recipe_names()
    name = name.removesuffix(".toml")
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else "list them with `transduce recipes`"
        raise DataError(f"no recipe is named {name!r}; {remedy}")
    return (_directory() / f"{name}.toml").read_text(encoding="utf-8")


def recipe_purpose(name: str) -> str:
    """First line of the comment at the head of a recipe."""
    return recipe_text(name).splitlines()[0].removeprefix("#").strip()


def _directory() -> Path:
    """Recipes inside an installed wheel, else the repository's."""
    inside = Path(str(files("transduce"))) / "_recipes"
    return inside if inside.is_dir() else inside.parents[2] / "recipes"
