"""A run directory trained from a recipe: `train`."""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from transduce.data.sources import listed_once
from transduce.errors import RunError
from transduce.metrics.measure import make_metric
from transduce.nn.initialise import SkipInit
from transduce.nn.kernels import restored_threads
from transduce.recipes import as_recipe
from transduce.runs.directory import claimed, is_begun_by_this_job, model_card
from transduce.settings.sections import to_dict, to_toml
from transduce.tasks.recipe import Recipe
from transduce.tasks.table import TASKS
from transduce.training.distributed import process_group, restarts
from transduce.training.log import read_curves
from transduce.training.trainer import (
    DataPrepared,
    Outcome,
    give_back_freed_memory,
    only_preparing,
)
from transduce.training.weights import sha256_of, write_text

logger = logging.getLogger("transduce")

HARDLY_LEARNT = {"bleu": 1.0, "chrf": 15.0, "per": 80.0, "cer": 80.0}
"""Validation scores that a model with some learning passes, each."""
VALIDATED_ON_TRAINING = (
    "data.valid has the contents of data.train, so validation says nothing of new inputs; leave "
    "data.valid out, to hold some out"
)
ENOUGH_EPOCHS = 20
"""Epochs after which more of them rarely help a model that has hardly learnt."""


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
    try:
        # training.threads is a setting of this run alone
        with restored_threads(), process_group() as ranks, listed_once():
            if not ranks.is_main:
                ranks.barrier()  # passed by the main process once data are prepared: trainer.train
            parsed, name = as_recipe(recipe, overrides)
            path = Path(run) if run is not None else Path("runs") / name
            if ranks.is_main:
                outcome = _train_and_describe(parsed, path, resume, overwrite)
            elif (path / "recipe.toml").is_file():
                outcome = TASKS[parsed.task].train(parsed, path, resume or restarts() > 0)
            else:
                raise RunError(
                    f"process {ranks.rank} cannot find {path.resolve()}, made by process 0; give a "
                    "--run on a file system shared by all machines"
                )
    finally:
        give_back_freed_memory()
    return path, outcome


def prepare(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    run: str | os.PathLike[str] | None = None,
    overrides: Iterable[str] = (),
) -> Path:
    """Read, tokenise and encode the data of a recipe, on all cores and without a GPU.

    recipe, run, overrides: as for `train`, which begins at the first step with `resume`.  The same
    call continues after an interruption.  Returns the run directory.
    """
    # Without first weights the model is built, but takes no memory.
    with restored_threads(), only_preparing(), SkipInit(), listed_once():
        parsed, name = as_recipe(recipe, overrides)
        path = Path(run) if run is not None else Path("runs") / name
        begun = (path / "recipe.toml").is_file()
        with claimed(path, parsed, resume=begun, overwrite=False):
            write_text(path / "recipe.toml", to_toml(parsed))
            training = dataclasses.replace(parsed.training, device="cpu")
            with contextlib.suppress(DataPrepared):
                TASKS[parsed.task].train(dataclasses.replace(parsed, training=training), path, True)
    return path


def _train_and_describe(parsed: Recipe, path: Path, resume: bool, overwrite: bool) -> Outcome:
    again = is_begun_by_this_job(path)
    with claimed(path, parsed, resume or again, overwrite and not again):
        write_text(path / "recipe.toml", to_toml(parsed))
        if _is_validated_on_training(to_dict(parsed.data)):
            logger.warning("%s: %s", path, VALIDATED_ON_TRAINING)
        # Started again, all ranks go on, if only from the beginning.
        outcome = TASKS[parsed.task].train(parsed, path, resume or restarts() > 0)
        write_text(path / "README.md", model_card(path, parsed, outcome))
    if complaint := _hardly_learnt(path, outcome):
        logger.warning("%s", complaint)
    return outcome


def _is_validated_on_training(data: Mapping[str, Any]) -> bool:
    """True if the corpora of `valid` are among those of `train`, files by their contents."""
    train, valid = (
        value if isinstance(value, list) else [value] if value else []
        for value in (data.get("train"), data.get("valid"))
    )
    return bool(valid) and all(
        any(_by_contents(other, identity) == _by_contents(corpus, identity) for other in train)
        for identity in (lambda path: path.stat().st_size, sha256_of)  # digests of equal sizes only
        for corpus in valid
    )


def _by_contents(value: Any, identity: Callable[[Path], object]) -> Any:
    """Settings with an identity in place of each path of a file."""
    if isinstance(value, dict):
        return {name: _by_contents(part, identity) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_by_contents(part, identity) for part in value]
    is_file = isinstance(value, str | Path) and Path(value).is_file()
    return identity(Path(value)) if is_file else value


def _hardly_learnt(path: Path, outcome: Outcome) -> str:
    """Message for a model whose outputs have next to nothing in common with the references."""
    measured = {name: outcome.scores[name] for name in HARDLY_LEARNT if name in outcome.scores}
    if not measured or any(
        score > HARDLY_LEARNT[name]
        if make_metric(name).higher_is_better
        else score < HARDLY_LEARNT[name]
        for name, score in measured.items()
    ):
        return ""
    scores = ", ".join(f"{name} {score:.2f}" for name, score in measured.items())
    epochs = 1 + max((line.get("epoch", 0) for line in read_curves(path).train), default=0)
    remedy = "train longer (training.minutes or training.steps)"
    if epochs > ENOUGH_EPOCHS:
        remedy = "add data, take a smaller model, or import a trained one (docs/import.md)"
    return (
        f"{path} has hardly learnt ({scores}): {outcome.step:,} steps ended in epoch {epochs:,}; "
        f"{remedy}"
    )
