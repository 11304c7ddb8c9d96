"""Sweep: train one recipe with varied settings, one run per combination or trial."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.config import apply_overrides, to_dict
from transduce.config_paths import LiteralText
from transduce.errors import RunError, SettingError
from transduce.experiments.definition import SWEEP_FILE, Definition
from transduce.experiments.grid import (
    Overrides,
    Range,
    Values,
    combinations,
    read_varied,
    split_values,
    value_of,
)
from transduce.experiments.training import train_trials
from transduce.experiments.trials import SweptRun, Trials, check_optuna
from transduce.html_table import html_table
from transduce.recipes import load_settings, parse_recipe, with_overrides
from transduce.runs.directory import locked
from transduce.tasks.recipe import Recipe


@dataclass(frozen=True)
class Group:
    """Finished runs that differ in the seed only."""

    overrides: Overrides
    """Other settings that differ from the rest of the sweep."""
    runs: Sequence[SweptRun]

    def scores(self, name: str) -> list[float]:
        """One validation score of each run."""
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
    """All started runs, including failed ones, in the order of their start."""

    def __repr__(self) -> str:
        best = f", best by {self.select_by}: {self.best.path.name}" if self.best else ""
        return f"<Sweep {self.directory}: {len(self.runs)} runs, {len(self.failed)} failed{best}>"

    def _repr_html_(self) -> str:
        """The runs as a table, for a notebook."""
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

    recipe: a TOML file, or a run directory; with `resume` also the directory of a sweep.
    overrides: `a.b=value` for all runs; `a.b=value,value` and, in a search, `a.b=low..high` vary.
    directory: output directory; by default `runs/` and the recipe's name with `-sweep`.
    jobs: number of runs to train at a time, each in its own process.
    resume: continue an existing sweep; values or trials may be added.
    Raises SettingError if nothing varies or no combination is a valid recipe, RunError if the
    directory cannot be used, InterruptedTraining at a signal.  A failed run raises nothing.
    """
    check_optuna()
    directory, definition, before = _defined(recipe, tuple(overrides), directory, search, resume)
    _, varied = read_varied(definition.varied)
    parsed = _checked(definition, varied, str(recipe))
    definition = _rooted(definition, parsed)
    if before is None or before.varied != definition.varied:
        definition = dataclasses.replace(definition, varied=_rooted_values(definition, varied))
        _, varied = read_varied(definition.varied)
    if before is not None:
        _check_same(directory, before, definition)
    with locked(directory):
        definition.write(directory)
        trials = Trials(directory)
        seed, select_by = parsed.seed, parsed.training.select_by
        numbers = trials.grid(varied)
        if definition.search:
            numbers = trials.search(varied, definition.search, seed, jobs > 1)
        train_trials(trials, numbers, select_by, jobs)
        return Sweep(directory, tuple(varied), select_by, trials.runs())


def _defined(
    recipe: Path, overrides: Overrides, directory: Path | None, search: int, resume: bool
) -> tuple[Path, Definition, Definition | None]:
    """Directory and definition of the sweep, and the earlier definition if it is resumed."""
    if (recipe / SWEEP_FILE).is_file():
        if not resume:
            raise RunError(f"{recipe} already contains a sweep; continue with --resume")
        if overrides or directory is not None:
            raise SettingError(
                f"{recipe} already defines its varied settings and its directory; drop --set and "
                "--runs, or start from a recipe"
            )
        before = Definition.read(recipe)
        return recipe, dataclasses.replace(before, search=search or before.search), before
    fixed, varied = read_varied(overrides)
    trial = tuple(override for override in overrides if override not in fixed)
    if not varied:
        raise SettingError("no setting varies; list values with --set section.name=value,value")
    directory = directory if directory is not None else Path("runs") / f"{recipe.stem}-sweep"
    now = Definition(load_settings(recipe)[1], trial, search, tuple(fixed))
    if (directory / SWEEP_FILE).is_file():
        if not resume:
            raise RunError(f"{directory} already contains a sweep; use --resume or another --runs")
        before = Definition.read(directory)
        return directory, dataclasses.replace(now, search=search or before.search), before
    if directory.exists() and not directory.is_dir():
        raise RunError(f"{directory} is a file; choose another --runs")
    if directory.is_dir() and any(file.name != ".lock" for file in directory.iterdir()):
        raise RunError(f"{directory} exists but is not a sweep; choose another --runs")
    return directory, now, None


def _check_same(directory: Path, before: Definition, now: Definition) -> None:
    """Raises SettingError if the existing runs do not belong to the requested sweep."""
    old, new = (_without_root(with_overrides(d.recipe, d.fixed)) for d in (before, now))
    for name in {**old, **new}:
        if old.get(name) != new.get(name):
            raise SettingError(
                f"{directory} was started with different {name!r} settings; choose another --runs"
            )
    if bool(before.search) != bool(now.search):
        kind = "search" if before.search else "grid"
        raise SettingError(f"{directory} was started as a {kind}; choose another --runs")
    old_varied, new_varied = read_varied(before.varied)[1], read_varied(now.varied)[1]
    same = old_varied == new_varied
    if not now.search and old_varied.keys() == new_varied.keys():
        same = all(_within(old_varied[name], new_varied[name]) for name in new_varied)
    if not same:
        raise SettingError(
            f"{directory} was started with --set {' '.join(before.varied)}; only further "
            "values may be added to a grid"
        )


def _within(old: Values, new: Values) -> bool:
    """True if a list of values includes all of an older one."""
    return not isinstance(old, Range) and not isinstance(new, Range) and set(old) <= set(new)


def _without_root(settings: Any) -> dict[str, Any]:
    """Settings without data.root, which may have moved."""
    data = settings.get("data")
    if not isinstance(data, dict):
        return dict(settings)
    return {**settings, "data": {name: data[name] for name in data if name != "root"}}


def _checked(definition: Definition, varied: dict[str, Values], where: str) -> Recipe:
    """The first combination that is a valid recipe; for a search, of the ends of ranges.

    Raises SettingError if the deciding setting varies, or, if no combination is valid, the error of
    the first one, such as a misspelt name.  Otherwise invalid ones fail in their turn.
    """
    ranges = [name for name, values in varied.items() if isinstance(values, Range)]
    if ranges and not definition.search:
        raise SettingError(f"--set {ranges[0]}: ranges need a search; add --search N")
    first: SettingError | None = None
    for overrides in combinations(varied):
        try:
            settings = (*definition.fixed, *overrides)
            recipe = parse_recipe(with_overrides(definition.recipe, settings), where)
        except SettingError as error:
            first = first or error
            continue
        if "training.select_by" in varied:
            raise SettingError("training.select_by selects the best run, so it cannot vary")
        return recipe
    assert first is not None
    raise first


def _rooted(definition: Definition, parsed: Recipe) -> Definition:
    """The definition with data.root and other paths made absolute, so that it can be resumed
    anywhere."""
    meant = to_dict(parsed)
    root = f"data.root={_escaped(parsed.data.root)}"
    recipe = apply_overrides(definition.recipe, [root, *_made_absolute(definition.recipe, meant)])
    fixed = (*definition.fixed, *_made_absolute(apply_overrides({}, definition.fixed), meant))
    return dataclasses.replace(definition, recipe=recipe, fixed=tuple(dict.fromkeys(fixed)))


def _rooted_values(definition: Definition, varied: Mapping[str, Values]) -> Overrides:
    """Varied settings with paths among the values made absolute."""
    sections = []
    for written, (name, values) in zip(definition.varied, varied.items(), strict=True):
        if isinstance(values, Range) or not any(isinstance(value_of(v), str) for v in values):
            sections.append(written)
        else:
            texts = (_rooted_value(definition, varied, name, text) for text in values)
            sections.append(f"{name}={','.join(texts)}")
    return tuple(sections)


def _rooted_value(
    definition: Definition, varied: Mapping[str, Values], name: str, text: str
) -> str:
    """Text of a value, or of the absolute path that the recipe makes of it."""
    value = value_of(text)
    for overrides in combinations({**varied, name: (text,)}) if isinstance(value, str) else ():
        try:
            combined = with_overrides(definition.recipe, (*definition.fixed, *overrides))
            setting: Any = to_dict(parse_recipe(combined, "recipe"))
        except (SettingError, RunError):  # another combination may be a recipe
            continue
        for key in name.split("."):
            setting = setting.get(key) if isinstance(setting, Mapping) else None
        if isinstance(setting, str) and setting != value and Path(setting).is_absolute():
            path = _escaped(setting)
            bare = split_values(path) == [path] and value_of(path) == path
            return path if bare else json.dumps(path, ensure_ascii=False)
        break
    return text


def _made_absolute(
    written: Mapping[str, Any], meant: Mapping[str, Any], section: str = ""
) -> Iterator[str]:
    """Overrides for the paths among settings that their recipe, `meant`, has made absolute.

    Values are in the user's syntax, since each run of the sweep parses them again.
    """
    for key, value in written.items():
        name, other = f"{section}{key}", meant.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            yield from _made_absolute(value, other, f"{name}.")
        elif isinstance(value, str) and isinstance(other, str):
            changed = isinstance(value, LiteralText) or value != other
            if changed and Path(other).is_absolute():
                yield f"{name}={_escaped(other)}"


def _escaped(path: str) -> str:
    """Text of a path, with each `$` that could begin a variable escaped."""
    return path.replace("$", "$$")
