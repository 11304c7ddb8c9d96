"""A run directory trained from a recipe: `train`."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from transduce.config import to_toml
from transduce.errors import RunError
from transduce.limits import read_json
from transduce.recipes import as_recipe, read_recipe
from transduce.run_directory import FITTED, claimed, is_begun_by_this_job, model_card
from transduce.tasks.table import TASKS
from transduce.tasks.task import Recipe
from transduce.training.distributed import Ranks, process_group, restarts
from transduce.training.fit_memory import FoundBudget
from transduce.training.memory import give_back_freed_memory
from transduce.training.trainer import Outcome
from transduce.training.weights import write_text


def train(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    run: str | os.PathLike[str] | None = None,
    overrides: Iterable[str] = (),
    resume: bool = False,
    overwrite: bool = False,
) -> tuple[Path, Outcome]:
    """Train from a recipe: the path of a TOML file, its settings, or the parsed recipe itself.

    run: directory to make, by default `runs/` and the recipe's name.  overrides: `a.b=value`.
    resume: continue an interrupted run.  overwrite: replace the run in `run`.
    Returns the run directory and the outcome of training; use the directory with `load`.  Under
    torchrun all processes train together; they need a common file system.  If one of them dies
    and torchrun restarts them, training resumes by itself.
    """
    threads = torch.get_num_threads()
    try:
        with process_group() as ranks:
            if not ranks.is_main:
                ranks.barrier()  # passed by the main process once data are prepared: trainer.train
            parsed, name = as_recipe(recipe, overrides)
            path = Path(run) if run is not None else Path("runs") / name
            if ranks.is_main:
                if resume or is_begun_by_this_job(path):
                    parsed = _with_found_batches(path, parsed)
                outcome = _train_and_describe(parsed, path, resume, overwrite)
            elif (path / "recipe.toml").is_file():
                parsed = _with_batches_of(path, parsed)
                outcome = _trained(parsed, path, resume or restarts() > 0)[1]
            else:
                raise RunError(
                    f"process {ranks.rank} cannot find {path.resolve()}, made by process 0; give a "
                    "--run on a file system shared by all machines"
                )
    finally:
        give_back_freed_memory()
        torch.set_num_threads(threads)  # training.threads is a setting of this run alone
    return path, outcome


def _train_and_describe(parsed: Recipe, path: Path, resume: bool, overwrite: bool) -> Outcome:
    again = is_begun_by_this_job(path)
    with claimed(path, parsed, resume or again, overwrite and not again):
        write_text(path / "recipe.toml", to_toml(parsed))
        # Started again, all ranks go on, if only from the beginning.
        parsed, outcome = _trained(parsed, path, resume or restarts() > 0)
        write_text(path / "README.md", model_card(path, parsed, outcome))
    return outcome


def _trained(recipe: Recipe, path: Path, resume: bool) -> tuple[Recipe, Outcome]:
    """The final recipe, and the outcome of training.

    Under `training.fit_memory`, training starts over once batches that fit are found, so the run
    equals that of a recipe with such batches from the first.
    """
    try:
        return recipe, TASKS[recipe.task].train(recipe, path, resume)
    except FoundBudget as found:
        budget = found.batch_tokens, found.accumulate
    give_back_freed_memory()
    ranks = Ranks.present()
    if ranks.is_main:
        recipe = _note_found_batches(path, recipe, *budget)
    else:
        recipe = _with_batches(recipe, *budget)
        ranks.barrier()  # passed by the main process once data are prepared: trainer.train
    return recipe, TASKS[recipe.task].train(recipe, path, resume)


def _with_found_batches(path: Path, recipe: Recipe) -> Recipe:
    """A recipe with `training.fit_memory`, with the batches found by the run that it resumes."""
    if not recipe.training.fit_memory or not (path / FITTED).is_file():
        return recipe
    try:
        fitted = read_json(path / FITTED)
        asked, found = fitted["asked"], fitted["found"]
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(
            f"{path / FITTED} is damaged; `transduce train {path} --run {path} --resume` continues "
            "with the recipe kept by the run"
        ) from None
    if found != _batches(read_recipe(path)) or asked != _batches(recipe):
        return recipe  # killed before it was noted; or for a step of another size
    return _with_batches_of(path, recipe)


def _with_batches_of(path: Path, recipe: Recipe) -> Recipe:
    """The recipe with the batches in the recipe of a run, unless that has still to find them."""
    before = read_recipe(path)
    if before.training.fit_memory or not recipe.training.fit_memory:
        return recipe
    return _with_batches(recipe, **_batches(before))


def _note_found_batches(path: Path, asked: Recipe, batch_tokens: int, accumulate: int) -> Recipe:
    """The recipe with batches that fit into memory; it is written to the run directory as well."""
    found = _with_batches(asked, batch_tokens, accumulate)
    noted = {"asked": _batches(asked), "found": _batches(found)}
    write_text(path / FITTED, json.dumps(noted) + "\n")
    write_text(path / "recipe.toml", to_toml(found))
    return found


def _batches(recipe: Recipe) -> dict[str, int]:
    training = recipe.training
    return {"batch_tokens": training.batch_tokens, "accumulate": training.accumulate}


def _with_batches(recipe: Recipe, batch_tokens: int, accumulate: int) -> Recipe:
    """The recipe with batches of this size, and no search for those that fit."""
    found: Any = recipe
    training = dataclasses.replace(
        recipe.training, batch_tokens=batch_tokens, accumulate=accumulate, fit_memory=False
    )
    return dataclasses.replace(found, training=training)  # type: ignore[no-any-return]
