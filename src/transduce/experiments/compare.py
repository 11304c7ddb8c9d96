"""Comparison of runs: settings that differ, scores, and their significance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transduce.metrics.measure import make_metric
from transduce.metrics.metric import Comparison, bootstrap_over_runs
from transduce.recipes import flat_settings, read_recipe
from transduce.settings.sections import to_dict
from transduce.tasks.evaluation import Evaluation


@dataclass(frozen=True)
class RunComparison:
    """Comparison of a run's outputs with the first run."""

    evaluation: Evaluation | None
    """Evaluation of the run; None if there is none."""
    differences: Mapping[str, Comparison] = field(default_factory=dict)
    """This run minus the first, by metric."""
    note: str = ""
    """Reason for missing differences."""


@dataclass(frozen=True)
class Setting:
    """Runs that differ in the seed only, compared with those of the first setting."""

    name: str
    """The settings in which it differs from others."""
    runs: Sequence[str]
    evaluations: Sequence[Evaluation]
    differences: Mapping[str, Comparison]
    """Mean of its runs minus mean of the first setting's, by metric; empty for the first."""


def compare_settings(
    names: Sequence[str],
    settings: Mapping[str, Sequence[Any]],
    comparisons: Sequence[RunComparison],
) -> list[Setting]:
    """Settings with several seeds each, compared over seeds and items; none to compare: empty.

    names, settings: of the runs, from `short_names` and `differing_settings`.  Runs that are not
    comparable with the first run are left out.
    """
    others = {name: column for name, column in settings.items() if name != "seed"}
    groups: dict[str, list[int]] = {}
    for i, comparison in enumerate(comparisons):
        if comparison.evaluation is not None and (i == 0 or comparison.differences):
            label = ", ".join(f"{name} = {column[i]}" for name, column in others.items())
            groups.setdefault(label, []).append(i)
    if len(groups) < 2 or any(len(members) < 2 for members in groups.values()):
        return []
    compared: list[Setting] = []
    for label, members in groups.items():
        evaluations = [e for i in members if (e := comparisons[i].evaluation) is not None]
        differences = over_runs(compared[0].evaluations, evaluations) if compared else {}
        compared.append(Setting(label, [names[i] for i in members], evaluations, differences))
    return compared


def over_runs(first: Sequence[Evaluation], others: Sequence[Evaluation]) -> dict[str, Comparison]:
    """Comparison of two settings by the evaluations of their runs, by metric."""
    measured = others[0]
    return {
        name: bootstrap_over_runs(
            make_metric(name, measured.language),
            [evaluation.hypotheses for evaluation in first],
            [evaluation.hypotheses for evaluation in others],
            measured.references,
        )
        for name, score in measured.scores.items()
        if isinstance(score, float)
    }


def differing_settings(paths: Sequence[Path]) -> dict[str, list[Any]]:
    """Settings that differ between runs: the value in each, None if it has none.

    Names are dotted, in the order of the recipes.  Raises RunError if a directory is not a run.
    """
    flat = [dict(flat_settings(to_dict(read_recipe(path)))) for path in paths]
    names = dict.fromkeys(name for settings in flat for name in settings)
    rows = {name: [settings.get(name) for settings in flat] for name in names}
    return {name: row for name, row in rows.items() if any(value != row[0] for value in row)}


def short_names(paths: Sequence[Path]) -> list[str]:
    """Last parts of the paths if these are distinct, else the whole paths."""
    names = [path.resolve().name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def compare_with_first(first: Evaluation | None, evaluation: Evaluation) -> RunComparison:
    """Compare an evaluation with the first run's by paired bootstrap, if possible.

    Both need outputs for the same inputs with the same references.
    """
    if first is None:
        return RunComparison(evaluation, note="the first run was not evaluated")
    if not evaluation.hypotheses or not first.hypotheses:
        return RunComparison(evaluation, note="the outputs cannot be compared one by one")
    same_inputs = list(evaluation.sources) == list(first.sources)
    answers = [list(map(list, scores.references)) for scores in (first, evaluation)]
    if not same_inputs or answers[0] != answers[1]:
        return RunComparison(evaluation, note="its data differ from the first run's")
    for name, signature in _signatures(evaluation).items():
        other = _signatures(first).get(name, signature)
        if signature != other:
            metric = name.removesuffix("_signature")
            note = f"its {metric} is {signature}, but the first run's is {other}"
            return RunComparison(evaluation, note=note)
    return RunComparison(evaluation, evaluation.against(first.hypotheses))


def _signatures(evaluation: Evaluation) -> dict[str, str]:
    return {name: value for name, value in evaluation.scores.items() if isinstance(value, str)}
