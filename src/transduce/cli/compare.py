"""`transduce compare`: compare several runs."""

from __future__ import annotations

import json as json_format
import logging
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transduce.cli.options import THIS_MACHINE, Decoding, Flag, Machine
from transduce.cli.output import print_lines
from transduce.cli.tables import table
from transduce.errors import DataError, RunError, SettingError

logger = logging.getLogger("transduce")

if TYPE_CHECKING:
    from transduce.experiments.compare import RunComparison, Setting
    from transduce.metrics.significance import Comparison
    from transduce.runs.run import Run
    from transduce.tasks.evaluation import Evaluation
    from transduce.training.curves import Curves


@dataclass(frozen=True)
class RunTable:
    """Everything shown about the runs; each list has one entry per run."""

    paths: Sequence[Path]
    names: Sequence[str]
    settings: Mapping[str, Sequence[Any]]
    curves: Sequence[Curves]
    best_steps: Sequence[int | None]
    """Steps whose weights were kept."""
    validation: Sequence[Mapping[str, float]]
    """Validation scores at these steps."""
    comparisons: Sequence[RunComparison]
    over_seeds: Sequence[Setting]
    """Settings with several seeds each."""


def compare(
    *runs: Path,
    split: Literal["test", "valid", "none"] = "test",
    plot: Path | None = None,
    json: Flag = False,
    decoding: Decoding = Decoding(),
    machine: Machine = THIS_MACHINE,
) -> None:
    """Compare the settings, scores and learning curves of runs.

    Evaluates each run on its own data, with 95 % confidence intervals. Runs with the same data as
    the first are compared with it by a significance test (paired bootstrap), as in
    `evaluate --against`. Several seeds of each of several settings are also compared setting
    against setting, over seeds and items.

    Parameters
    ----------
    runs
        Run directories, or directories of sweeps for all of their runs.
    split
        Data split to evaluate; none compares settings and training logs only.
    plot
        Plot training and validation loss to this file (.svg or .png).
    json
        Print one JSON object.
    """
    from transduce.experiments.compare import compare_settings, differing_settings, short_names
    from transduce.experiments.curves import check_picture, draw_curves
    from transduce.experiments.trials import runs_in
    from transduce.training.curves import kept_validation, read_curves, scores_in

    paths = [path for run in runs for path in runs_in(run)]
    if not paths:
        raise SettingError("nothing to compare; give at least one run")
    if plot is not None:
        check_picture(plot)
    settings = differing_settings(paths)
    curves = [read_curves(path) for path in paths]
    kept = [kept_validation(path, one) for path, one in zip(paths, curves, strict=True)]
    names = short_names(paths)
    if plot is not None:
        draw_curves(dict(zip(names, curves, strict=True)), plot)
    comparisons = [] if split == "none" else _comparisons(paths, split, decoding, machine)
    evaluations = [one.evaluation for one in comparisons if one.evaluation is not None]
    for few in dict.fromkeys(evaluation.few for evaluation in evaluations if evaluation.few):
        logger.warning("%s", few)
    steps, scores = [one.get("step") for one in kept], [scores_in(one) for one in kept]
    over_seeds = compare_settings(names, settings, comparisons)
    compared = RunTable(paths, names, settings, curves, steps, scores, comparisons, over_seeds)
    if json:
        print_lines(json_format.dumps(_as_object(compared, split), ensure_ascii=False))
    else:
        print_lines(*_as_text(compared, split))


def _comparisons(
    paths: Sequence[Path], split: Literal["test", "valid"], decoding: Decoding, machine: Machine
) -> list[RunComparison]:
    """Evaluate each run, with one model in memory at a time."""
    from transduce.experiments.compare import RunComparison, compare_with_first

    comparisons: list[RunComparison] = []
    first: Evaluation | None = None
    for path in paths:
        try:
            evaluation = _evaluated(machine.load(path), split, decoding)
        except (DataError, RunError) as error:  # no data or no weights; compare the others
            comparisons.append(RunComparison(None, note=str(error)))
            continue
        if not comparisons:
            first = evaluation
            comparisons.append(RunComparison(evaluation))
        else:
            comparisons.append(compare_with_first(first, evaluation))
    return comparisons


def _evaluated(model: Run, split: Literal["test", "valid"], decoding: Decoding) -> Evaluation:
    return model.evaluate(split, None, decoding.over_any(model.predictor))


def _as_object(compared: RunTable, split: str) -> dict[str, Any]:
    return {
        "runs": [
            {
                "run": str(path),
                "step": curves.step,
                "seconds": curves.seconds,
                "best_step": step,
                "validation": scores,
            }
            for path, curves, step, scores in zip(
                compared.paths,
                compared.curves,
                compared.best_steps,
                compared.validation,
                strict=True,
            )
        ],
        "settings": compared.settings,
        "split": split,
        "evaluations": [_comparison_as_object(comparison) for comparison in compared.comparisons],
        "over_seeds": [
            {
                "setting": setting.name,
                "runs": list(setting.runs),
                "against_first": _differences_as_object(setting.differences),
            }
            for setting in compared.over_seeds
        ],
    }


def _comparison_as_object(comparison: RunComparison) -> dict[str, Any]:
    found = comparison.evaluation
    return {
        "scores": dict(found.scores) if found else {},
        "intervals": found.intervals() if found else {},
        "items": len(found.sources) if found else 0,
        "against_first": _differences_as_object(comparison.differences),
        "note": comparison.note or None,
    }


def _differences_as_object(differences: Mapping[str, Comparison]) -> dict[str, Any]:
    return {
        name: {
            "difference": difference.difference,
            "low": difference.low,
            "high": difference.high,
            "p_value": difference.p_value,
        }
        for name, difference in differences.items()
    }


def _as_text(compared: RunTable, split: str) -> Iterator[str]:
    if len(compared.paths) > 1:
        yield "differing settings"
        rows = [[name, *values] for name, values in compared.settings.items()]
        yield from table(["", *compared.names], rows) if rows else ["none"]
        yield ""
    yield "training, and validation scores of the best step"
    metrics = list(dict.fromkeys(name for scores in compared.validation for name in scores))
    training = [
        [name, curves.step, curves.seconds and round(curves.seconds), step]
        + [scores.get(metric) for metric in metrics]
        for name, curves, step, scores in zip(
            compared.names, compared.curves, compared.best_steps, compared.validation, strict=True
        )
    ]
    yield from table(["run", "steps", "seconds", "best step", *metrics], training)
    if compared.comparisons:
        yield ""
        yield from _evaluations(compared, split)


def _evaluations(compared: RunTable, split: str) -> Iterator[str]:
    """One table per metric, then notes on runs that could not be compared."""
    found = [comparison.evaluation for comparison in compared.comparisons]
    metrics = dict.fromkeys(
        name
        for one in found
        if one is not None
        for name, value in one.scores.items()
        if isinstance(value, float)
    )
    intervals = {
        name: one.intervals() if one else {}
        for name, one in zip(compared.names, found, strict=True)
    }
    several = len(compared.paths) > 1
    yield f"scores on {split}" + (f"; differences from {compared.names[0]}" if several else "")
    for metric in metrics:
        rows = []
        for name, comparison in zip(compared.names, compared.comparisons, strict=True):
            one, difference = comparison.evaluation, comparison.differences.get(metric)
            low, high = intervals[name].get(metric, (None, None))
            row: list[Any] = [name, one.scores.get(metric) if one else None]
            row.append(None if low is None else f"[{low:.2f}, {high:.2f}]")
            row.append(len(one.sources) if one else None)
            row += _difference_cells(difference) if several else []
            rows.append(row)
        yield ""
        heads = ["", metric, "95 % interval", "items"]
        yield from table(heads + ["difference", "95 % interval", "p-value"] * several, rows)
    yield from _over_seeds(compared.over_seeds)
    notes = [
        f"{name}: {comparison.note}"
        for name, comparison in zip(compared.names, compared.comparisons, strict=True)
        if comparison.note
    ]
    if notes:
        yield ""
        yield from notes


def _difference_cells(difference: Comparison | None) -> list[str]:
    """Difference, interval and p-value; blank without one."""
    if difference is None:
        return ["", "", ""]
    interval = f"[{difference.low:+.2f}, {difference.high:+.2f}]"
    return [f"{difference.difference:+.2f}", interval, f"{difference.p_value:.3f}"]


def _over_seeds(settings: Sequence[Setting]) -> Iterator[str]:
    """One table per metric of settings against the first, over seeds and items."""
    if not settings:
        return
    yield ""
    yield "settings over seeds and items; differences from the first"
    for metric in settings[-1].differences:
        rows = []
        for setting in settings:
            mean = statistics.fmean(float(run.scores[metric]) for run in setting.evaluations)
            cells = _difference_cells(setting.differences.get(metric))
            rows.append([setting.name, len(setting.runs), mean, *cells])
        yield ""
        heads = ["", "runs", f"mean {metric}", "difference", "95 % interval", "p-value"]
        yield from table(heads, rows)
