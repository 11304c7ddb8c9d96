"""Recipes: the settings of an experiment, read from a file, a run directory or the package, and
overridden.

`settings/sections.py` reads settings, and a task declares the sections of its recipe; this module
joins the two.  `as_recipe` reads recipes that users write, `read_recipe` those that a run keeps.
"""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from transduce.errors import DataError, RunError, SettingError
from transduce.settings.paths import literal
from transduce.settings.sections import apply_overrides, did_you_mean, load_toml, to_dict
from transduce.tasks.recipe import Recipe
from transduce.tasks.table import TASKS
from transduce.training.weight_files import check_files, checkpoints_of, read_weights_header

GONE = ("fit_memory", "memory_limit")
"""Former settings of `[training]`, in recipes of older runs; no result depends on them."""


def as_recipe(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    overrides: Iterable[str],
) -> tuple[Recipe, str]:
    """The parsed recipe, and the name for its run."""
    if not isinstance(recipe, str | os.PathLike | Mapping | Recipe):
        raise SettingError(f"a recipe is a file or a dictionary of settings, not {recipe!r}")
    if not isinstance(recipe, str | os.PathLike):
        settings = with_overrides(to_dict(recipe), overrides)
        return parse_recipe(settings, "recipe"), str(settings.get("task", "run"))
    path = Path(recipe)
    file, settings = load_settings(path)
    settings = with_overrides(settings, overrides)
    return parse_recipe(settings, str(file)), path.stem if file is path else path.resolve().name


def load_settings(path: Path) -> tuple[Path, dict[str, Any]]:
    """The file of a recipe and its settings; `path` is a TOML file or a run directory.

    Paths in the recipe of a run are literal; `~` and `$VARIABLE` are for recipes that users write.
    """
    file = path / "recipe.toml" if (path / "recipe.toml").is_file() else path
    return file, _settings_of_run(file) if is_of_a_run(file) else load_toml(file)


def is_of_a_run(file: Path) -> bool:
    """True for the recipe that a run keeps, in which every text stands for itself."""
    home = file.parent
    marks = (home / ".lock", home / "weights.safetensors", *checkpoints_of(home))
    return file.name == "recipe.toml" and any(mark.exists() for mark in marks)


def _settings_of_run(file: Path) -> dict[str, Any]:
    """Settings in the recipe of a run, without those that are gone."""
    settings: dict[str, Any] = literal(load_toml(file))
    training = settings.get("training")
    if isinstance(training, dict):
        settings["training"] = {name: training[name] for name in training if name not in GONE}
    return settings


def with_overrides(settings: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Settings of a recipe with each `--set a.b=value` applied, by the sections of their task."""
    task = settings.get("task")
    kind = TASKS[task].recipe if isinstance(task, str) and task in TASKS else None
    return apply_overrides(settings, overrides, kind)


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings of nested sections by dotted name."""
    for name, setting in settings.items():
        if isinstance(setting, Mapping):
            yield from flat_settings(setting, f"{prefix}{name}.")
        else:
            yield prefix + name, setting


def parse_recipe(settings: Mapping[str, Any], where: str) -> Recipe:
    """Settings as the recipe of their task; `where` goes before messages."""
    task = settings.get("task")
    if task is None:
        raise SettingError(f"{where}: task is missing; there are {', '.join(TASKS)}")
    if not isinstance(task, str) or task not in TASKS:
        hint = did_you_mean(str(task), TASKS) or f"; there are {', '.join(TASKS)}"
        raise SettingError(f"{where}: task {task!r} is not known{hint}")
    return TASKS[task].recipe.parse(settings, where)


def recipe_file(path: Path) -> Path:
    """The file of a run's recipe.  Raises RunError where there is none."""
    if not path.is_dir():
        raise RunError(f"{path} is not a directory; a run is a directory made by training")
    if not (path / "recipe.toml").is_file():
        raise RunError(f"{path} has no recipe.toml, so it is not a run directory")
    return path / "recipe.toml"


def read_recipe(path: Path) -> Recipe:
    """The recipe of a run directory.  Raises RunError when there is none."""
    file = recipe_file(path)
    check_files(path)
    try:
        return parse_recipe(_settings_of_run(file), str(file))
    except SettingError:
        if (path / "weights.safetensors").is_file():
            read_weights_header(
                path / "weights.safetensors"
            )  # a newer format may have other settings
        raise


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
