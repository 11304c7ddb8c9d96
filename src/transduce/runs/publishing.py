"""Publication of a run: the files that others need, as the Hugging Face Hub expects them."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePath
from typing import Any

from transduce.errors import RunError, SettingError
from transduce.recipes import read_recipe
from transduce.runs.directory import copy_run, written_aside
from transduce.settings.sections import to_dict, to_toml
from transduce.training.weights import write_text

NO_LICENCE = re.compile(r"^# license: .*$", re.MULTILINE)
LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}")


def publish_run(
    run: str | os.PathLike[str], directory: str | os.PathLike[str], licence: str = ""
) -> Path:
    """Write `directory`: model card, weights, tokenizers and recipe of a run, for publication.

    The directory is itself a run directory, without checkpoints and without paths of this machine.
    licence: identifier for the card's metadata, such as "apache-2.0".  Raises RunError if the
    run or the directory cannot be used, SettingError for a licence that is not an identifier.
    """
    source, path = Path(run), Path(directory)
    if licence and not LICENCE.fullmatch(licence):
        raise SettingError(
            f"licence {licence!r} is not an identifier; write one of the Hub's, such as apache-2.0"
        )
    if path.exists():
        raise RunError(f"{path} exists already; give another DIRECTORY")
    recipe = read_recipe(source)
    if not (source / "weights.safetensors").is_file():
        raise RunError(f"{source} has no weights.safetensors; finish its training first")
    with written_aside(path) as aside:
        copy_run(source, aside, without=("recipe.toml", "README.md"))
        write_text(aside / "recipe.toml", to_toml(without_private_paths(to_dict(recipe))))
        write_text(aside / "README.md", _card(source, licence))
        aside.rename(path)
    return path


def without_private_paths(value: Any) -> Any:
    """Settings in which paths outside the recipe's directory are names of files alone."""
    if isinstance(value, dict):
        return {
            key: without_private_paths(setting) for key, setting in value.items() if key != "root"
        }
    if isinstance(value, list | tuple):
        return [without_private_paths(setting) for setting in value]
    if isinstance(value, str):
        parts = PurePath(value).parts
        if PurePath(value).is_absolute() or parts[:1] in (("..",), ("~",)):
            return parts[-1]
    return value


def _card(source: Path, licence: str) -> str:
    try:
        card = (source / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise RunError(f"{source} has no README.md; write its model card first") from None
    return NO_LICENCE.sub(f"license: {licence}", card, count=1) if licence else card
