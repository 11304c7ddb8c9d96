"""Comparison of runs: settings that differ, scores, and their significance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transduce.config import to_dict
from transduce.metrics.significance import Comparison
from transduce.recipes import read_recipe
from transduce.tasks.task import Evaluation


@dataclass(frozen=True)
class RunComparison:
    """Comparison of a run's outputs with the first run."""

    evaluation: Evaluation | None
    """None where there is nothing to evaluate it on."""
    differences: Mapping[str, Comparison] = field(default_factory=dict)
    """This run minus the first, by metric."""
    note: str = ""
    """Why there are none."""


def differing_settings(paths: Sequence[Path]) -> dict[str, list[Any]]:
    """Settings that are not the same in all runs: the value in each, None where it has none.

    Names are dotted, in the order of the recipes.  Raises RunError for what is not a run.
    """
    flat = [_flat(to_dict(read_recipe(path))) for path in paths]
    names = dict.fromkeys(name for settings in flat for name in settings)
    rows = {name: [settings.get(name) for settings in flat] for name in names}
    return {name: row for name, row in rows.items() if any(value != row[0] for value in row)}


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of the paths where these tell them apart, else the whole paths."""
    names = [path.resolve().name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def compare_with_first(first: Evaluation | None, evaluation: Evaluation) -> RunComparison:
    """An evaluation beside that of the first run, by paired bootstrap where this has a meaning:
    both have outputs, for the same inputs, with the same right answers."""
    if first is None:
        return RunComparison(evaluation, note="the first run was not evaluated")
    if not evaluation.hypotheses or not first.hypotheses:
        return RunComparison(
            evaluation, note="there are no outputs that could be compared one by one"
        )
    same_inputs = list(evaluation.sources) == list(first.sources)
    answers = [list(map(list, one.references)) for one in (first, evaluation)]
    if not same_inputs or answers[0] != answers[1]:
        return RunComparison(evaluation, note="its data are not those of the first run")
    for name, signature in _signatures(evaluation).items():
        other = _signatures(first).get(name, signature)
        if signature != other:
            metric = name.removesuffix("_signature")
            note = f"its {metric} is {signature}, that of the first run {other}"
            return RunComparison(evaluation, note=note)
    return RunComparison(evaluation, evaluation.against(first.hypotheses))


def _signatures(evaluation: Evaluation) -> dict[str, str]:
    """What stands beside scores and says how they were measured."""
    return {name: value for name, value in evaluation.scores.items() if isinstance(value, str)}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Sections within sections as dotted names."""
    result: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            result |= _flat(value, f"{prefix}{name}.")
        else:
            result[prefix + name] = value
    return result
