"""Trials of a sweep: definition, choice by Optuna, training of the runs.

DIRECTORY/
    sweep.toml      the recipe, the settings given with `--set`, number of trials
    study.journal   Optuna's storage: the runs, with their settings and outcomes
    001/ 002/ …     the runs, each an ordinary run directory
    001.log …       their output, if several were trained at a time

A failed run is a result like any other, with its reason; the rest continues.
"""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from transduce.errors import (
    OUT_OF_MEMORY,
    MemoryLimitError,
    RunError,
    SettingError,
    TrainingError,
    TransduceError,
    extra_module,
    first_line,
    is_out_of_memory,
)
from transduce.experiments.grid import Overrides, Range, Values, combinations, read_varied
from transduce.runs.training import train
from transduce.settings.paths import literal
from transduce.settings.sections import load_toml, to_toml
from transduce.support.work import available_cores
from transduce.training.log import read_curves
from transduce.training.signals import InterruptedTraining, handled_by
from transduce.training.weights import write_text

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial


SWEEP_FILE = "sweep.toml"


@dataclass(frozen=True)
class Definition:
    """Definition of a sweep, in the user's words."""

    recipe: Mapping[str, Any]
    """Settings of the recipe."""
    overrides: tuple[str, ...]
    """Settings with a value or several, as for `--set`."""
    search: int = 0
    """Trials of a search; 0 for a grid."""
    started_in: str = "."
    """Working directory, from which relative paths in the settings start."""
    of_a_run: bool = False
    """True for the recipe of a run, in which `~` and `$` stand for themselves."""

    def write(self, directory: Path) -> None:
        """Write it to the sweep's directory."""
        write_text(directory / SWEEP_FILE, to_toml(self))

    @staticmethod
    def read(directory: Path) -> Definition:
        """Read it from a directory.  Raises RunError if it is damaged."""
        settings = load_toml(directory / SWEEP_FILE)
        try:
            recipe, of_a_run = dict(settings["recipe"]), bool(settings["of_a_run"])
            return Definition(
                literal(recipe) if of_a_run else recipe,
                tuple(map(str, settings["overrides"])),
                int(settings["search"]),
                str(settings["started_in"]),
                of_a_run,
            )
        except (KeyError, TypeError, ValueError):
            raise RunError(
                f"{directory / SWEEP_FILE} is damaged; start a new sweep in another --runs"
            ) from None


STUDY_FILE = "study.journal"
STUDY = "sweep"
OVERRIDES, OUTCOME = "overrides", "outcome"
"""Attributes of a trial; without an outcome, its training was interrupted."""

logger = logging.getLogger("transduce")


@dataclass(frozen=True)
class TrialOutcome:
    """Outcome of a run of a sweep."""

    error: str = ""
    """Reason of a failure; empty on success."""
    final: bool = True
    """True if another try would end the same way."""
    step: int = 0
    best_step: int = 0
    seconds: float = 0.0
    """Wall-clock training time, over all sessions."""
    scores: Mapping[str, float] = field(default_factory=dict)
    """Validation scores of the kept weights."""
    higher_is_better: bool = False
    """True if a higher `training.select_by` score is better."""


@dataclass(frozen=True)
class SweptRun:
    """A run of a sweep."""

    path: Path
    overrides: Overrides
    result: TrialOutcome


def check_optuna() -> None:
    """Raises SettingError if Optuna is not installed."""
    extra_module("optuna", "transduce sweep", "sweep", SettingError)


class Trials:
    """Trials of the sweep in a directory, its journal shared by all processes.

    A trial is open until its outcome is final.
    """

    def __init__(self, directory: Path) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.directory = directory
        self._storage = JournalStorage(JournalFileBackend(str(directory / STUDY_FILE)))
        # The sign of scores that should be high is turned, as the direction is known only after the
        # first training.
        self._study = optuna.create_study(
            storage=self._storage, study_name=STUDY, direction="minimize", load_if_exists=True
        )

    def path(self, number: int) -> Path:
        """Directory of a trial's run."""
        return self.directory / f"{number + 1:03d}"

    def overrides(self, number: int) -> Overrides:
        """Settings of a trial."""
        return tuple(self._study.get_trials(deepcopy=False)[number].user_attrs[OVERRIDES])

    def runs(self) -> list[SweptRun]:
        """All runs with an outcome, in the order of their trials."""
        return [
            SweptRun(
                self.path(trial.number),
                tuple(trial.user_attrs[OVERRIDES]),
                TrialOutcome(**trial.user_attrs[OUTCOME]),
            )
            for trial in self._begun()
            if OUTCOME in trial.user_attrs
        ]

    def grid(self, varied: Mapping[str, Values]) -> Iterator[int]:
        """Open trials of all combinations; new trials come last."""
        known = {frozenset(trial.user_attrs[OVERRIDES]) for trial in self._begun()}
        for overrides in combinations(varied):
            if frozenset(overrides) not in known:
                trial = self._study.ask()
                trial.set_user_attr(OVERRIDES, overrides)
        yield from self._open()

    def search(
        self, varied: Mapping[str, Values], count: int, seed: int, parallel: bool
    ) -> Iterator[int]:
        """Open trials, then new trials of Optuna's tree-structured Parzen estimator up to `count`.

        Each depends on `seed`, its number and the trials before it, so an interrupted search, one
        run at a time, continues as if it had not been interrupted.  Settings drawn a second time
        are not trained again.  parallel: True if trials run side by side.
        """
        from optuna.samplers import TPESampler
        from optuna.trial import TrialState

        yield from self._open()
        space = {name: _distribution(values) for name, values in varied.items()}
        while len(self._drawn(space)) < count:
            # Of both, or a search with the next seed would try the same things, one trial later.
            chance = np.random.SeedSequence([seed, len(self._study.trials)])
            self._study.sampler = TPESampler(
                seed=int(chance.generate_state(1)[0]), constant_liar=parallel
            )
            trial = self._study.ask(space)
            texts = (v if isinstance(v, str) else repr(v) for v in trial.params.values())
            overrides = [f"{name}={text}" for name, text in zip(trial.params, texts, strict=True)]
            before = [t for t in self._begun() if t.user_attrs[OVERRIDES] == overrides]
            if not before:
                trial.set_user_attr(OVERRIDES, overrides)
                yield trial.number
            elif before[0].state == TrialState.COMPLETE:
                self._study.tell(trial, before[0].value)
            else:
                self._study.tell(trial, state=TrialState.FAIL)

    def end(self, number: int, outcome: TrialOutcome, select_by: str) -> None:
        """Record the outcome of a trial.  select_by: the validation score to optimise."""
        from optuna.trial import TrialState

        study = self._storage.get_study_id_from_name(STUDY)
        trial = self._storage.get_trial_id_from_study_id_trial_number(study, number)
        self._storage.set_trial_user_attr(trial, OUTCOME, dataclasses.asdict(outcome))
        if outcome.error and outcome.final:
            self._study.tell(number, state=TrialState.FAIL)
        elif not outcome.error:
            sign = -1 if outcome.higher_is_better else 1
            self._study.tell(number, sign * outcome.scores[select_by])

    def _begun(self) -> list[FrozenTrial]:
        """Trials with settings of their own, so neither repeated trials nor those of a killed
        process that chose none."""
        trials = self._study.get_trials(deepcopy=False)
        return [trial for trial in trials if OVERRIDES in trial.user_attrs]

    def _open(self) -> list[int]:
        return [trial.number for trial in self._begun() if not trial.state.is_finished()]

    def _drawn(self, space: Mapping[str, BaseDistribution]) -> list[FrozenTrial]:
        """Trials of a search, without those of a killed process."""
        trials = self._study.get_trials(deepcopy=False)
        return [
            trial
            for trial in trials
            if trial.params.keys() == space.keys()
            and (trial.state.is_finished() or OVERRIDES in trial.user_attrs)
        ]


def _distribution(values: Values) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(values, Range):
        return CategoricalDistribution(values)
    if values.whole:
        return IntDistribution(int(values.low), int(values.high), log=values.logarithmic)
    return FloatDistribution(values.low, values.high, log=values.logarithmic)


def runs_in(path: Path) -> list[Path]:
    """Runs of a sweep's directory, in order; for another path, the path itself."""
    if not (path / SWEEP_FILE).is_file():
        return [path]
    check_optuna()
    runs = sorted(file.parent for file in path.glob("*/recipe.toml"))
    for run in Trials(path).runs():
        if run.result.error:
            how = "compared as far as it got" if run.path in runs else "skipped"
            logger.warning("%s failed and is %s: %s", run.path, how, run.result.error)
    return runs


def train_trials(trials: Trials, numbers: Iterator[int], select_by: str, jobs: int) -> None:
    """Train the runs of trials, `jobs` at a time, and record their outcomes.

    numbers: of the trials.  select_by: name of the score.  jobs: processes.
    """
    ended = _sequentially(trials, numbers, select_by)
    if jobs > 1:
        ended = _in_parallel(trials, numbers, select_by, jobs)
    for number in ended:
        runs = {run.path: run.result for run in trials.runs()}
        outcome = runs[trials.path(number)]
        scores = "  ".join(f"{name} {score:.4g}" for name, score in outcome.scores.items())
        how = f"finished after step {outcome.step:,}: {scores}"
        how = f"failed: {outcome.error}" if outcome.error else how
        logger.info("%s %s", trials.path(number), how)


def _begin(trials: Trials, number: int) -> None:
    logger.info("%s %s", trials.path(number), " ".join(trials.overrides(number)))


def _sequentially(trials: Trials, numbers: Iterator[int], select_by: str) -> Iterator[int]:
    for number in numbers:
        _begin(trials, number)
        train_trial(trials, number, select_by)
        yield number


def _in_parallel(
    trials: Trials, numbers: Iterator[int], select_by: str, jobs: int
) -> Iterator[int]:
    """Train up to `jobs` runs at a time, each in its own process, and yield those that ended.

    The stderr output of a run goes to a file beside its directory, `NAME.log`.  At SIGINT or
    SIGTERM all write a checkpoint and stop; raises InterruptedTraining then.
    """
    context = multiprocessing.get_context("spawn")  # a fork would inherit torch's threads
    threads = max(1, available_cores() // jobs)
    running: dict[int, tuple[BaseProcess, int]] = {}
    with handled_by(_stop):  # wherever the code is
        try:
            while True:
                while len(running) < jobs and (number := next(numbers, None)) is not None:
                    _begin(trials, number)
                    arguments = (trials.directory, number, select_by, threads)
                    process: BaseProcess = context.Process(target=_child, args=arguments)
                    process.start()
                    running[process.sentinel] = process, number
                if not running:
                    return
                for sentinel in wait(list(running)):
                    assert isinstance(sentinel, int)
                    process, number = running.pop(sentinel)
                    process.join()
                    if code := process.exitcode or 0:
                        killer = f"was killed by {signal.Signals(-code).name}" if code < 0 else ""
                        how = killer or f"exited with code {code}"
                        outcome = TrialOutcome(error=f"its process {how}", final=False)
                        trials.end(number, outcome, select_by)
                    yield number
        finally:
            for process, _ in running.values():
                process.terminate()
            for process, _ in running.values():
                process.join()


def _child(directory: Path, number: int, select_by: str, threads: int) -> None:
    if hasattr(os, "setsid"):  # so that Ctrl-C reaches the parent alone, which passes it on once
        os.setsid()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    trials = Trials(directory)
    with trials.path(number).with_suffix(".log").open("ab") as file:
        os.dup2(file.fileno(), 2)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    torch.set_num_threads(threads)
    try:
        train_trial(trials, number, select_by)
    except InterruptedTraining as stop:
        trials.end(number, TrialOutcome(error=str(stop), final=False), select_by)


def _end_with_parent() -> None:
    """Stop with a checkpoint if the parent has died: a resumed sweep needs the run."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGTERM)
    else:  # `kill` would end the process at once
        signal.raise_signal(signal.SIGTERM)


def _stop(number: int, frame: FrameType | None) -> None:
    raise InterruptedTraining(number, "stopped with checkpoints; continue with --resume")


def train_trial(trials: Trials, number: int, select_by: str) -> None:
    """Train the run of a trial, or resume it, and record the outcome.

    trials: of the experiment.  number: of the trial.  select_by: name of the score.

    Raises InterruptedTraining only.
    """
    definition = Definition.read(trials.directory)
    fixed, _ = read_varied(definition.overrides)
    overrides = (*fixed, *trials.overrides(number))
    trials.end(number, _outcome(definition, overrides, trials.path(number)), select_by)


def _outcome(definition: Definition, overrides: tuple[str, ...], path: Path) -> TrialOutcome:
    begun = (path / "recipe.toml").is_file()
    try:
        _, trained = train(definition.recipe, path, overrides, resume=begun)
    except InterruptedTraining:
        raise
    except (TransduceError, OSError) as error:
        # By the same numbers training would come to the same end; all else may be mended.
        final = isinstance(error, TrainingError) and not isinstance(error, MemoryLimitError)
        return TrialOutcome(error=str(error), final=final)
    except Exception as error:
        if is_out_of_memory(error):
            return TrialOutcome(error=OUT_OF_MEMORY, final=False)
        # A bug of ours: the others shall go on.
        traceback.print_exc()
        return TrialOutcome(error=f"{type(error).__name__}: {first_line(error)}", final=False)
    finally:
        if "torch._dynamo" in sys.modules:  # code compiled for one model is useless to others
            torch.compiler.reset()
    return TrialOutcome(
        step=trained.step,
        best_step=trained.step if trained.averaged else trained.best_step,  # as `compare` has it,
        seconds=read_curves(path).seconds or trained.seconds,  # and this too
        scores=trained.scores,
        higher_is_better=trained.higher_is_better,
    )
