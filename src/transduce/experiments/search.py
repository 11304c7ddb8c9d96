"""Search by Optuna: settings of the next trial from the scores of earlier ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from transduce.errors import SettingError, needs_extra
from transduce.experiments.grid import Overrides, Range, Values
from transduce.experiments.jobs import JobResult

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial, Trial

JOURNAL = "study.journal"


def check_optuna() -> None:
    """Raises SettingError if Optuna is not installed."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        missing = needs_extra("--search", "sweep")
        raise SettingError(f"{missing}, or use a grid: --set with lists of values") from None


class OptunaSearch:
    """Optuna's tree-structured Parzen estimator, with its journal in the sweep's directory.

    Every trial depends on `seed`, its number and the trials before it, so an interrupted search,
    one run at a time, continues as if it had not been interrupted.

    varied: values and ranges to choose from.  count: total number of trials.
    select_by: the validation score to optimise.  parallel: True if trials run side by side.
    """

    def __init__(
        self,
        varied: Mapping[str, Values],
        count: int,
        directory: Path,
        seed: int,
        select_by: str,
        parallel: bool = False,
    ) -> None:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = {name: _distribution(values) for name, values in varied.items()}
        self._count, self._seed, self._select_by = count, seed, select_by
        self._parallel = parallel
        storage = JournalStorage(JournalFileBackend(str(directory / JOURNAL)))
        # Scores that should be high are told with their sign turned, since which ones these are
        # is known after the first training only.
        self._study = optuna.create_study(
            storage=storage, study_name="sweep", direction="minimize", load_if_exists=True
        )
        self._open: dict[Overrides, list[int]] = {}
        self._unfinished = [
            trial
            for trial in self._complete_trials()
            if trial.state == optuna.trial.TrialState.RUNNING
        ]

    def ask(self) -> Overrides | None:
        """Interrupted trials first, then Optuna's next suggestion."""
        if self._unfinished:
            return self._opened(self._unfinished.pop(0))
        if len(self._complete_trials()) >= self._count:
            return None
        from optuna.samplers import TPESampler

        # Of both, or a search with the next seed would try the same things, one trial later.
        chance = np.random.SeedSequence([self._seed, len(self._study.trials)])
        seed = int(chance.generate_state(1)[0])
        self._study.sampler = TPESampler(seed=seed, constant_liar=self._parallel)
        return self._opened(self._study.ask(self._space))

    def tell(self, overrides: Overrides, result: JobResult) -> None:
        """Report the outcome of a run; one that may be retried stays open."""
        from optuna.trial import TrialState

        if not result.final:
            return
        for number in self._open.pop(overrides, []):
            if result.error:
                self._study.tell(number, state=TrialState.FAIL)
            else:
                sign = -1 if result.higher_is_better else 1
                self._study.tell(number, sign * result.scores[self._select_by])

    def _opened(self, trial: Trial | FrozenTrial) -> Overrides:
        chosen = (trial.params[name] for name in self._space)
        texts = [value if isinstance(value, str) else repr(value) for value in chosen]
        overrides = tuple(f"{n}={text}" for n, text in zip(self._space, texts, strict=True))
        self._open.setdefault(overrides, []).append(trial.number)
        return overrides

    def _complete_trials(self) -> list[FrozenTrial]:
        """All trials, except those left incomplete by a killed process."""
        return [trial for trial in self._study.trials if set(trial.params) == set(self._space)]


def _distribution(values: Values) -> BaseDistribution:
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if not isinstance(values, Range):
        return CategoricalDistribution(values)
    if values.whole:
        return IntDistribution(int(values.low), int(values.high), log=values.logarithmic)
    return FloatDistribution(values.low, values.high, log=values.logarithmic)
