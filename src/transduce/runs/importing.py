"""Import of a Hugging Face directory as a run directory: `import_run`."""

from __future__ import annotations

import datetime
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from transduce.errors import RunError
from transduce.interop.models import import_directory
from transduce.interop.new_language import NewLanguage, with_language
from transduce.interop.read import ImportedModel
from transduce.recipes import parse_recipe, read_recipe, with_overrides
from transduce.runs.directory import card_of, claimed, copy_run, written_aside
from transduce.settings.sections import to_dict, to_toml
from transduce.support.version import __version__
from transduce.tasks.model_card import code
from transduce.tasks.recipe import Recipe
from transduce.tasks.table import TASKS
from transduce.tasks.vocabularies import saved_vocabularies
from transduce.training.weights import read_tensors, write_text, write_weights

logger = logging.getLogger("transduce")


def import_run(
    directory: str | os.PathLike[str],
    run: str | os.PathLike[str],
    overwrite: bool = False,
    overrides: Iterable[str] = (),
    language: NewLanguage | None = None,
) -> Path:
    """Make the run directory `run` from a directory that Hugging Face `transformers` saved, or
    that `publish_run` wrote.

    overrides: settings of its recipe to change, as `a.b=value`.  language: to add to a model of
    many.  overwrite: replace an existing
    run.  Raises DataError for an unsupported directory, SettingError for an invalid override,
    RunError if `run` exists.  After an error `run` is unchanged.
    """
    source, path = Path(directory), Path(run)
    if path.name in ("", ".."):  # without a name of its own
        path = path.resolve()
    _check_free(path, overwrite)
    if not (source / "recipe.toml").is_file():
        imported = import_directory(source)
    elif language is None:
        return _copy(source, path, overrides)
    else:
        imported = _of_run(source)
    if language is not None:
        imported = with_language(imported, language)
    recipe = parse_recipe(with_overrides(imported.recipe, overrides), str(source))
    with written_aside(path) as aside:
        _write(aside, imported, recipe)
        write_text(aside / "README.md", _card(path, aside, source, imported, recipe))
        imported.weights.clear()  # a second copy is loaded now
        _check_whole(recipe, aside, source)
        _put(aside, path, recipe)
    if imported.left_out:
        names = sorted({name.rpartition(".")[0] for name in imported.left_out})
        message = "skipping tensors without a use in the task %r: %s"
        logger.info(message, recipe.task, ", ".join(names))
    return path


def _of_run(source: Path) -> ImportedModel:
    """The model of a run directory of translation."""
    source_side, target_side = saved_vocabularies(source)
    tokenizers = {"source_tokenizer": source_side, "target_tokenizer": target_side}
    if source_side is target_side:
        tokenizers = {"tokenizer": source_side}
    weights = read_tensors(source / "weights.safetensors")
    return ImportedModel(to_dict(read_recipe(source)), weights, tokenizers)


def _copy(source: Path, path: Path, overrides: Iterable[str]) -> Path:
    recipe = parse_recipe(with_overrides(to_dict(read_recipe(source)), overrides), str(source))
    with written_aside(path) as aside:
        copy_run(source, aside, without=("recipe.toml",))
        write_text(aside / "recipe.toml", to_toml(recipe))
        _check_whole(recipe, aside, source)
        _put(aside, path, recipe)
    return path


def _put(aside: Path, path: Path, recipe: Recipe) -> None:
    if not path.exists():
        aside.rename(path)
    else:
        with claimed(path, recipe, resume=False, overwrite=True):
            for file in aside.iterdir():
                file.replace(path / file.name)


def _check_free(path: Path, overwrite: bool) -> None:
    """Raises RunError if there is something that must not be spoiled."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; give another RUN")
    if (path / "recipe.toml").is_file():
        if not overwrite:
            raise RunError(
                f"{path} holds a run already; replace it with --overwrite, or give another RUN"
            )
    elif path.is_dir() and any(file.name != ".lock" for file in path.iterdir()):
        raise RunError(f"{path} exists and is not a run directory; give another RUN")


def _write(run: Path, imported: ImportedModel, recipe: Recipe) -> None:
    settings = to_dict(recipe)
    settings["data"].pop("root", None)  # no data, so no place where they are
    write_text(run / "recipe.toml", to_toml(settings))
    for name, tokenizer in imported.tokenizers.items():
        tokenizer.save(run / f"{name}{tokenizer.suffix}")
    if imported.labels is not None:
        labels = json.dumps(imported.labels, ensure_ascii=False, indent=2)
        write_text(run / "labels.json", labels + "\n")
    write_weights(run / "weights.safetensors", imported.weights)


def _check_whole(recipe: Recipe, aside: Path, source: Path) -> None:
    """Raises RunError unless every weight has its place; it names the source, which lasts."""
    try:
        TASKS[recipe.task].load(recipe, aside, "cpu")
    except RunError as error:
        weights = str(aside / "weights.safetensors")
        raise RunError(str(error).replace(weights, str(source))) from None


def _card(path: Path, aside: Path, source: Path, imported: ImportedModel, recipe: Recipe) -> str:
    parameters = sum(tensor.numel() for tensor in imported.weights.values())
    left_out = "".join(f"- {code(name)}\n" for name in imported.left_out)
    description = (
        f"A {recipe.task} model of {parameters:,} parameters, imported from the Hugging Face "
        f"directory {code(source.resolve().name)} by transduce "
        f"{__version__} on {datetime.date.today()}.  Nothing was "
        "trained here; licence and training data are the imported model's.  Fine-tune it "
        "with `fine_tune.run` in a recipe.\n\n"
        + (f"Left out, since this task has no use for them:\n\n{left_out}" if left_out else "")
    )
    return card_of(aside, path.name, recipe, description, [source.resolve().name])
