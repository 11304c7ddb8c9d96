"""A run directory: the files made by training, sufficient to use the model.

    runs/NAME/
        recipe.toml             every setting, spelled out
        weights.safetensors     the weights to use (the best, or an average)
        tokenizer.model         or source_tokenizer.* and target_tokenizer.*
        labels.json             the labels of a classifier
        normalisation.json      mean and deviation of the features of speech
        speakers.json           the speakers of synthesis, if there are several
        adapter.safetensors     the LoRA adapter alone
        film.safetensors        attention of a few sentences during training, with training.film
        metrics.jsonl           the log, a JSON object a line
        events.out.tfevents.*   the log for TensorBoard, with training.tensorboard
        README.md               the model card
        non_finite/             batches whose loss or gradient was not finite
        shortlist.safetensors   target tokens that a source can need, from `shortlist`
        quality.json            from confidence to quality, from `calibrate`
        provenance.json         origin of the synthetic pairs, if there are any
        synthetic/              synthetic pairs made for this run
        made/                   data, plan and short trainings of `transduce make`
        account.html, .json     its account
        checkpoints/            to resume from; may be deleted once training has ended

It contains no programs: loading an untrusted model runs no code.
"""

import datetime
import json
import logging
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.errors import RunError, SettingError, writing
from transduce.recipes import read_recipe
from transduce.settings.sections import differing, to_dict, to_toml
from transduce.support.files import LockHeldError, locked_file
from transduce.support.version import __version__
from transduce.tasks.model_card import card_text, code, data_told, file_name, scores_told
from transduce.tasks.provenance import PROVENANCE, inherit_provenance, provenance_text
from transduce.tasks.recipe import Recipe
from transduce.tasks.table import TASKS
from transduce.training import weight_files
from transduce.training.distributed import job_name, restarts, restarts_can_follow
from transduce.training.film import FILM
from transduce.training.log import DIRECTORY as BAD_BATCHES
from transduce.training.trainer import Outcome
from transduce.training.weight_files import (
    check_files,
    check_name,
    check_written_to,
    checkpoints_of,
)
from transduce.training.weights import write_text, write_weights

logger = logging.getLogger("transduce")

VOCABULARIES = ("*tokenizer.*", "labels.json", "normalisation.json", "speakers.json")
"""Files that give the ids of a model, and the features that it reads, their meaning."""
SYNTHETIC = "synthetic"
"""Directory of the pairs that `transduce distil` and `transduce backtranslate` make."""
MADE = "made"
"""Directory of the data and the plan of `transduce make`."""
LEARNT_AFTER = ("shortlist.safetensors", "quality.json")
"""Files that `transduce shortlist` and `transduce calibrate` add to a run."""
JOB = ".job"
"""Name of the torchrun job that trains here, which may continue after a process has died."""
MAY_CHANGE = ("training", "decoding", "speaking", "evaluation")
"""Sections that may change when a run is resumed; `training` without the size of a batch."""
NO_RESULT = tuple(f"training.{name}" for name in ("keep_last", "log_every", "film", "tensorboard"))
"""Settings in them that change no result."""


@contextmanager
def claimed(path: Path, recipe: Recipe, resume: bool, overwrite: bool) -> Iterator[None]:
    """Make the run directory and lock it for writing, keeping its files until training ends.

    path: of the run.  resume: continue a run there.  overwrite: replace a run there.

    Where the work fails before it has made more than the recipe, a new directory is deleted.
    Raises RunError if another process holds the lock, if there is a run already, and for a
    directory of other files; SettingError for a recipe that the run cannot be resumed with.
    """
    check_available(path, recipe, resume, overwrite)
    is_new = not path.exists()
    with locked(path):
        if resume:
            weight_files.finish_restore(path)
        else:
            weight_files.restore(path, _made_by_a_run)  # where an attempt to replace it was killed
        check_available(path, recipe, resume, overwrite)  # another may have made a run meanwhile
        if resume:
            _log_changes(path, recipe)
        else:
            weight_files.back_up(path, list(_made_by_a_run(path)))
        if restarts_can_follow():
            write_text(path / JOB, job_name())
        else:
            (path / JOB).unlink(missing_ok=True)
        try:
            yield
        except BaseException:
            if not resume:
                weight_files.restore(path, _made_by_a_run)
            if is_new and {file.name for file in path.iterdir()} <= {".lock", "recipe.toml"}:
                shutil.rmtree(path, ignore_errors=True)
            raise
        weight_files.discard(path)


def is_begun_by_this_job(path: Path) -> bool:
    """True where torchrun has restarted this very training after a process died."""
    try:
        return restarts() > 0 and (path / JOB).read_text(encoding="utf-8") == job_name()
    except (OSError, ValueError):
        return False


def check_available(path: Path, recipe: Recipe, resume: bool, overwrite: bool) -> None:
    """Check beforehand, without touching anything, that `claimed` will not refuse.

    path, recipe: of the run.  resume: continue a run there.  overwrite: replace a run there.
    """
    check_name(path)
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; give another --run")
    check_written_to(path)  # not the target of a link
    fine_tune = getattr(recipe, "fine_tune", None)
    if fine_tune is not None and Path(fine_tune.run).resolve() == path.resolve() and not resume:
        raise RunError(f"{path} is the run that fine_tune.run starts from; give another --run")
    holds_run = (path / "recipe.toml").is_file()
    if holds_run:
        check_files(path)
    # A run that stopped before its first checkpoint, say at a misspelt file name, is no loss.
    begun = holds_run and ((path / "weights.safetensors").exists() or checkpoints_of(path))
    if resume and holds_run:
        _check_resumable(path, read_recipe(path), recipe)
        # The model card is written last, so the weights beside it are results, not a first try.
        if (path / "README.md").is_file() and not checkpoints_of(path):
            raise RunError(
                f"{path} has no checkpoints to resume from; --overwrite with --run {path} trains "
                "it from the beginning"
            )
    elif begun and not overwrite:
        raise RunError(
            f"{path} holds a run already; continue with --resume, replace it with --overwrite, or "
            "give another --run"
        )
    elif path.is_dir() and not holds_run and _holds_other_things(path):
        raise RunError(f"{path} exists and is not a run directory; give another --run")


def vocabularies_of(path: Path) -> list[Path]:
    """Files of a run directory that give the ids of its model their meaning."""
    return sorted(file for pattern in VOCABULARIES for file in path.glob(pattern))


def _holds_other_things(path: Path) -> bool:
    aside = (weight_files.WHOLE, weight_files.MOVING, weight_files.GONE)
    # recipe.toml.tmp where a first try was killed at once
    of_transduce = (".lock", JOB, SYNTHETIC, MADE, "recipe.toml.tmp", *aside)
    return any(file.name not in of_transduce for file in path.iterdir())


def _check_resumable(path: Path, before: Recipe, now: Recipe) -> None:
    """Raises SettingError for a change in settings of the weights or of the order of the data."""

    def essence(recipe: Recipe) -> dict[str, Any]:
        training = recipe.training
        settings = to_dict(recipe)
        settings["data"].pop("root")  # which may have been moved
        for name in MAY_CHANGE:
            settings.pop(name, None)
        settings["training.batch_tokens"] = training.batch_tokens
        return dict(settings)

    for name in differing(essence(before), essence(now)):
        raise SettingError(
            f"{path} was begun with other settings of {name!r}; to resume it, keep them"
        )
    if before.training.optimizer.kind != now.training.optimizer.kind:
        raise SettingError(
            f"{path} was begun with training.optimizer.kind = {before.training.optimizer.kind!r}; "
            "no other optimizer can read its checkpoints: to resume it, keep the kind"
        )
    if bool(before.training.ema) != bool(now.training.ema):
        raise SettingError(
            f"{path} was begun with training.ema = {before.training.ema:g}; on resuming, a "
            "moving average can be neither added nor dropped"
        )


def _log_changes(path: Path, now: Recipe) -> None:
    if not (path / "recipe.toml").is_file() or not checkpoints_of(path):
        return
    before, after = to_dict(read_recipe(path)), to_dict(now)
    changes = [
        change
        for name in MAY_CHANGE
        for change in _changes(name, before.get(name, {}), after.get(name, {}))
    ]
    if changes:
        logger.warning("%s resumes with other settings: %s", path, "; ".join(changes))


def _changes(name: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in {**before, **now}:
            yield from _changes(f"{name}.{key}", before.get(key), now.get(key))
    elif before != now and name not in NO_RESULT:
        yield f"{name} = {_shown(now)} (was {_shown(before)})"


def _shown(value: Any) -> str:
    return "unset" if value is None else json.dumps(value, ensure_ascii=False)


def _made_by_a_run(path: Path) -> Iterator[Path]:
    """Files of a run in its directory, the recipe last; other files are left out."""
    for directory in ("checkpoints", BAD_BATCHES):
        if (path / directory).is_dir():
            yield path / directory
    for pattern in (
        *VOCABULARIES,
        "weights.safetensors",
        "adapter.safetensors",
        "metrics.jsonl",
        FILM,
        "events.out.tfevents.*",
        "README.md",
        PROVENANCE,
        *LEARNT_AFTER,
        "recipe.toml",
    ):
        yield from sorted(path.glob(pattern))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock the run directory for writing, by its file `.lock`.

    Raises RunError while another process holds it.
    """
    check_name(path)
    with ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked_file(path / ".lock"))
        except LockHeldError:
            raise RunError(f"{path} is in use by another process") from None
        except OSError as error:
            raise RunError(f"{path} cannot be written to: {error.strerror}") from None
        yield


def write_run(
    path: Path, recipe: Recipe, made_of: Sequence[Path], origin: str, weights: Mapping[str, Tensor]
) -> None:
    """Write a run directory from weights made of other runs: complete or absent.

    path: of the new run.  recipe: written into it.  made_of: those runs; vocabularies come from the
    first, the provenance of synthetic data from all.  origin: of the weights, for the model card,
    as Markdown.  Raises RunError if the directory cannot be written, and if the first run has lost
    its vocabularies.
    """
    vocabularies = vocabularies_of(made_of[0])
    if not vocabularies and any(map(vocabularies_of, made_of)):
        raise RunError(f"{made_of[0]} has no tokenizer files; copy the whole run directory")
    with written_aside(path) as aside:
        for file in vocabularies:
            (aside / file.name).write_bytes(file.read_bytes())
        write_text(aside / "recipe.toml", to_toml(recipe))
        inherit_provenance(made_of, aside)
        write_weights(aside / "weights.safetensors", weights)
        description = f"{origin}\n\n{provenance_text(aside)}"
        names = [run.resolve().name for run in made_of]
        card = card_of(aside, path.name, recipe, description, names)
        write_text(aside / "README.md", card)
        aside.rename(path)


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A temporary directory beside `path`, to write into and to rename; deleted unless renamed.

    Raises RunError if it cannot be written.
    """
    check_name(path)
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path, RunError):
            aside.mkdir(parents=True)
            yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def model_card(path: Path, recipe: Recipe, outcome: Outcome) -> str:
    """The model card of a trained run, as Markdown.

    path: of the run.  recipe: of its training.  outcome: best step, scores and averaged
    checkpoints.
    """
    weights = f"best at step {outcome.best_step:,}"
    if outcome.averaged == 1:
        weights = "the last checkpoint"
    elif outcome.averaged:
        weights = f"the mean of the last {outcome.averaged} checkpoints"
    fine_tune = getattr(recipe, "fine_tune", None)
    base = file_name(fine_tune.run) if fine_tune is not None else ""
    description = (
        f"A {recipe.task} model trained with transduce {__version__} "
        f"on {datetime.date.today()}{f', from the run {code(base)}' if base else ''}: "
        f"{outcome.step:,} steps in {outcome.seconds / 60:.1f} minutes; {weights}.\n\n"
        f"{scores_told(outcome.scores)}\n\n"
        f"Trained on:\n\n{data_told(recipe.data)}\n\n{provenance_text(path)}"
    )
    made_of = [base] if base else []
    return card_of(path, path.resolve().name, recipe, description, made_of, outcome.scores)


def card_of(
    path: Path,
    name: str,
    recipe: Recipe,
    description: str,
    made_of: Sequence[str],
    scores: Mapping[str, float] | None = None,
) -> str:
    """Model card of a run of a name, whose files are in `path`.  The rest is as in `card_text`.

    recipe: of the run.  description: as Markdown.  made_of: names of the runs it comes from.
    scores: of validation; None without.
    """
    tag, files = TASKS[recipe.task].pipeline_tag, files_to_hand_on(path)
    return card_text(name, recipe, description, files, scores, made_of, pipeline_tag=tag)


def files_to_hand_on(path: Path) -> list[str]:
    """Names of the files in a run directory needed to use and to document the model."""
    patterns = ("recipe.toml", "weights.safetensors", *VOCABULARIES, PROVENANCE, *LEARNT_AFTER)
    files = [file.name for pattern in patterns for file in sorted(path.glob(pattern))]
    return ["README.md", *files]


def copy_run(run: Path, directory: Path, without: Collection[str]) -> None:
    """Copy the files of `files_to_hand_on`, but for some names, into a directory.

    run: directory to copy from.  without: names of files to leave out.
    """
    for name in files_to_hand_on(run):
        if name not in without:
            shutil.copyfile(run / name, directory / name)
