"""Sweep: train a recipe with varied settings, a run per combination or trial."""

import contextlib
import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transduce.errors import RunError, SettingError
from transduce.experiments.grid import Overrides, Range, Values, combinations, read_varied
from transduce.experiments.trials import (
    SWEEP_FILE,
    Definition,
    SweptRun,
    Trials,
    check_optuna,
    train_trials,
)
from transduce.recipes import is_of_a_run, load_settings, parse_recipe, with_overrides
from transduce.runs.directory import locked
from transduce.support.tables import html_table
from transduce.tasks.recipe import Recipe


@dataclass(frozen=True)
class Group:
    """Finished runs that differ in the seed only."""

    overrides: Overrides
    """Other settings that differ from the rest of the sweep."""
    runs: Sequence[SweptRun]

    def scores(self, name: str) -> list[float]:
        """A validation score of each run."""
        return [run.result.scores[name] for run in self.runs if name in run.result.scores]

    def mean(self, name: str) -> float:
        """Mean of that score."""
        return statistics.fmean(self.scores(name))

    def deviation(self, name: str) -> float | None:
        """Standard deviation of that score between seeds; None for a single run."""
        scores = self.scores(name)
        return statistics.stdev(scores) if len(scores) > 1 else None


@dataclass(frozen=True)
class Sweep:
    """Results of a sweep."""

    directory: Path
    varied: tuple[str, ...]
    """Names of the settings that vary."""
    select_by: str
    """The deciding validation score."""
    runs: Sequence[SweptRun]
    """All started runs, also failed, in the order of their start."""

    def __repr__(self) -> str:
        best = f", best by {self.select_by}: {self.best.path.name}" if self.best else ""
        return f"<Sweep {self.directory}: {len(self.runs)} runs, {len(self.failed)} failed{best}>"

    def _repr_html_(self) -> str:
        rows = []
        for swept in self.runs:
            settings = dict(setting.split("=", 1) for setting in swept.overrides)
            outcome = swept.result.error or swept.result.scores.get(self.select_by, "")
            rows.append(
                (swept.path.name, *(settings.get(name, "") for name in self.varied), outcome)
            )
        return html_table(["run", *self.varied, self.select_by], rows)

    @property
    def failed(self) -> list[SweptRun]:
        """The runs that failed."""
        return [run for run in self.runs if run.result.error]

    @property
    def groups(self) -> list[Group]:
        """Finished runs, grouped if they differ in the seed only."""
        groups: dict[Overrides, list[SweptRun]] = {}
        for run in self.runs:
            if not run.result.error:
                others = tuple(
                    override for override in run.overrides if not override.startswith("seed=")
                )
                groups.setdefault(others, []).append(run)
        return [Group(overrides, runs) for overrides, runs in groups.items()]

    @property
    def best_group(self) -> Group | None:
        """The group with the best mean score; None if all runs failed."""
        return min(
            self.groups,
            key=lambda group: self._sign(group.runs[0]) * group.mean(self.select_by),
            default=None,
        )

    @property
    def best(self) -> SweptRun | None:
        """The run with the best score in the best group; None if all runs failed."""
        group = self.best_group
        if group is None:
            return None
        return min(group.runs, key=lambda run: self._sign(run) * run.result.scores[self.select_by])

    def _sign(self, run: SweptRun) -> int:
        return -1 if run.result.higher_is_better else 1


def sweep(
    recipe: Path,
    overrides: Iterable[str] = (),
    directory: Path | None = None,
    search: int = 0,
    jobs: int = 1,
    resume: bool = False,
) -> Sweep:
    """Train a recipe once for every combination of values, or for `search` trials of them.

    recipe: a TOML file, or a run directory; with `resume` the directory of a sweep.
    overrides: `a.b=value` for all runs; `a.b=value,value` and, in a search, `a.b=low..high` vary.
    directory: output directory; by default `runs/` and the recipe's name with `-sweep`.
    jobs: number of runs to train at a time, each in its own process.
    resume: continue a sweep, a search up to another number of trials.
    Raises SettingError if nothing varies or no combination is a valid recipe, RunError if the
    directory cannot be used, InterruptedTraining at a signal.  A failed run raises nothing.
    """
    check_optuna()
    overrides = tuple(overrides)
    if resume:
        if overrides or directory is not None:
            raise SettingError("--resume takes the settings of the sweep; drop --set and --runs")
        directory = recipe.resolve()
        definition = _continued(directory, search)
    else:
        directory = directory or Path("runs") / f"{recipe.stem}-sweep"
        _check_free(recipe, directory)
        file, settings = load_settings(recipe)
        definition = Definition(settings, overrides, search, str(Path.cwd()), is_of_a_run(file))
    fixed, varied = read_varied(definition.overrides)
    if not varied:
        raise SettingError("no setting varies; list values with --set section.name=value,value")
    with contextlib.chdir(definition.started_in):
        valid = _first_valid(definition, fixed, varied, str(recipe))
        with locked(directory):
            definition.write(directory)
            trials = Trials(directory)
            numbers = trials.grid(varied)
            if definition.search:
                numbers = trials.search(varied, definition.search, valid.seed, jobs > 1)
            select_by = valid.training.select_by
            train_trials(trials, numbers, select_by, jobs)
            return Sweep(directory, tuple(varied), select_by, trials.runs())


def _continued(directory: Path, search: int) -> Definition:
    """The definition of a sweep to resume, up to `search` trials unless 0."""
    if not (directory / SWEEP_FILE).is_file():
        raise RunError(f"{directory} is not the directory of a sweep; start one without --resume")
    before = Definition.read(directory)
    if search and not before.search:
        raise SettingError(f"{directory} was started as a grid; choose another --runs")
    if not Path(before.started_in).is_dir():
        raise RunError(
            f"{directory} was started in {before.started_in}, which is gone; restore it, or change "
            f"started_in in {SWEEP_FILE}"
        )
    return dataclasses.replace(before, search=search or before.search)


def _check_free(recipe: Path, directory: Path) -> None:
    """Raises RunError if a new sweep cannot have the directory."""
    for path in (recipe, directory):
        if (path / SWEEP_FILE).is_file():
            raise RunError(
                f"{path} already contains a sweep; continue with `transduce sweep {path} "
                "--resume`, or use another --runs"
            )
    if directory.exists() and not directory.is_dir():
        raise RunError(f"{directory} is a file; choose another --runs")
    if directory.is_dir() and any(file.name != ".lock" for file in directory.iterdir()):
        raise RunError(f"{directory} exists but is not a sweep; choose another --runs")


def _first_valid(
    definition: Definition, fixed: Sequence[str], varied: dict[str, Values], where: str
) -> Recipe:
    """The first combination that is a valid recipe; for a search, of the ends of ranges.

    Raises SettingError if the deciding setting varies, or, if no combination is valid, the error of
    the first, such as a misspelt name.  Otherwise invalid runs fail in their turn.
    """
    ranges = [name for name, values in varied.items() if isinstance(values, Range)]
    if ranges and not definition.search:
        raise SettingError(f"--set {ranges[0]}: ranges need a search; add --search N")
    if "training.select_by" in varied:
        raise SettingError("training.select_by selects the best run, so it cannot vary")
    first: SettingError | None = None
    for overrides in combinations(varied):
        try:
            return parse_recipe(with_overrides(definition.recipe, (*fixed, *overrides)), where)
        except SettingError as error:
            first = first or error
    assert first is not None
    raise first
