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
    """Evaluation of the run; None if there is none."""
    differences: Mapping[str, Comparison] = field(default_factory=dict)
    """This run minus the first, by metric."""
    note: str = ""
    """Reason for missing differences."""


def differing_settings(paths: Sequence[Path]) -> dict[str, list[Any]]:
    """Settings that differ between runs: the value in each, None if it has none.

    Names are dotted, in the order of the recipes.  Raises RunError if a directory is not a run.
    """
    flat = [_flat(to_dict(read_recipe(path))) for path in paths]
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
    answers = [list(map(list, one.references)) for one in (first, evaluation)]
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
    """Signatures beside the scores."""
    return {name: value for name, value in evaluation.scores.items() if isinstance(value, str)}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested sections to dotted names."""
    result: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            result |= _flat(value, f"{prefix}{name}.")
        else:
            result[prefix + name] = value
    return result
