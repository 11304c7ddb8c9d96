"""Trials of a sweep in Optuna's storage: settings, outcomes, and the choice of the next."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from transduce.errors import SettingError, extra_module
from transduce.experiments.definition import SWEEP_FILE
from transduce.experiments.grid import Overrides, Range, Values, combinations

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

STUDY_FILE = "study.journal"
STUDY = "sweep"
OVERRIDES, OUTCOME = "overrides", "outcome"
"""Attributes of a trial; without an outcome, its training was interrupted."""

logger = logging.getLogger("transduce")


@dataclass(frozen=True)
class Outcome:
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
    result: Outcome


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
                Outcome(**trial.user_attrs[OUTCOME]),
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

    def end(self, number: int, outcome: Outcome, select_by: str) -> None:
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
