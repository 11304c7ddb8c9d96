"""`transduce compare`: compare several runs."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transduce.cli.options import (
    AS_IN_RECIPE,
    Decoding,
    Flag,
    Machine,
    chosen_options_if_any,
    with_decoding,
)
from transduce.cli.output import print_json, print_lines
from transduce.errors import DataError, RunError, SettingError
from transduce.support.tables import table

if TYPE_CHECKING:
    from transduce.experiments.compare import RunComparison, Setting
    from transduce.metrics.metric import Comparison
    from transduce.tasks.evaluation import Evaluation
    from transduce.training.log import Curves


logger = logging.getLogger("transduce")


@dataclass(frozen=True)
class ComparedRun:
    """Figures of a run."""

    name: str
    path: Path
    curves: Curves
    best_step: int | None
    """Step whose weights were kept."""
    validation: Mapping[str, float]
    """Validation scores at this step."""
    comparison: RunComparison | None
    """None with `--split none`."""


@with_decoding()
def compare(
    *runs: Path,
    split: Literal["test", "valid", "none"] = "test",
    plot: Path | None = None,
    json: Flag = False,
    decoding: Decoding = AS_IN_RECIPE,
    machine: Machine = Machine(),
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
        Print a JSON object.
    """
    from transduce.experiments.compare import compare_settings, differing_settings, short_names
    from transduce.experiments.curves import check_picture, draw_curves
    from transduce.experiments.trials import runs_in
    from transduce.training.log import kept_validation, read_curves, scores_in

    paths = [path for run in runs for path in runs_in(run)]
    if not paths:
        raise SettingError("nothing to compare; give at least one run")
    if plot is not None:
        check_picture(plot)
    settings = differing_settings(paths)
    curves = [read_curves(path) for path in paths]
    names = short_names(paths)
    if plot is not None:
        draw_curves(dict(zip(names, curves, strict=True)), plot)
    comparisons = [] if split == "none" else _comparisons(paths, split, decoding, machine)
    over_seeds = compare_settings(names, settings, comparisons)
    rows = []
    for i, (name, path) in enumerate(zip(names, paths, strict=True)):
        best = kept_validation(path, curves[i])
        comparison = comparisons[i] if comparisons else None
        row = ComparedRun(name, path, curves[i], best.get("step"), scores_in(best), comparison)
        rows.append(row)
    evaluations = [comparison.evaluation for comparison in comparisons]
    for few in dict.fromkeys(evaluation.few for evaluation in evaluations if evaluation):
        if few:
            logger.warning("%s", few)
    if json:
        print_json(_as_object(rows, settings, over_seeds, split))
        return
    lines = [*_settings_table(names, settings), *_training_table(rows)]
    if split != "none":
        lines += ["", *_score_tables(rows, split), *_seed_tables(over_seeds), *_notes(rows)]
    print_lines(*lines)


def _comparisons(
    paths: Sequence[Path], split: Literal["test", "valid"], decoding: Decoding, machine: Machine
) -> list[RunComparison]:
    """Evaluate each run, with one model in memory at a time."""
    from transduce.experiments.compare import RunComparison, compare_with_first

    comparisons: list[RunComparison] = []
    first: Evaluation | None = None
    for path in paths:
        try:
            model = machine.load(path)
            options = chosen_options_if_any(model.predictor, decoding)
            evaluation = model.evaluate(split, None, options)
        except (DataError, RunError) as error:  # no data or no weights; compare the others
            comparisons.append(RunComparison(None, note=str(error)))
            continue
        if not comparisons:
            first = evaluation
            comparisons.append(RunComparison(evaluation))
        else:
            comparisons.append(compare_with_first(first, evaluation))
    return comparisons


def _as_object(
    rows: Sequence[ComparedRun],
    settings: Mapping[str, Sequence[Any]],
    over_seeds: Sequence[Setting],
    split: str,
) -> dict[str, Any]:
    return {
        "runs": [
            {
                "run": str(row.path),
                "step": row.curves.step,
                "seconds": row.curves.seconds,
                "best_step": row.best_step,
                "validation": row.validation,
            }
            for row in rows
        ],
        "settings": settings,
        "split": split,
        "evaluations": [_evaluation(row.comparison) for row in rows if row.comparison],
        "over_seeds": [
            {
                "setting": setting.name,
                "runs": list(setting.runs),
                "against_first": _differences(setting.differences),
            }
            for setting in over_seeds
        ],
    }


def _evaluation(comparison: RunComparison) -> dict[str, Any]:
    evaluation = comparison.evaluation
    return {
        "scores": dict(evaluation.scores) if evaluation else {},
        "intervals": evaluation.intervals() if evaluation else {},
        "items": len(evaluation.sources) if evaluation else 0,
        "against_first": _differences(comparison.differences),
        "note": comparison.note or None,
    }


def _differences(comparisons: Mapping[str, Comparison]) -> dict[str, Any]:
    return {name: comparison.as_dict() for name, comparison in comparisons.items()}


def _settings_table(names: Sequence[str], settings: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    if len(names) > 1:
        yield "differing settings"
        rows = [[name, *values] for name, values in settings.items()]
        yield from table(["", *names], rows) if rows else ["none"]
        yield ""


def _training_table(rows: Sequence[ComparedRun]) -> Iterator[str]:
    yield "training, and validation scores of the best step"
    metrics = list(dict.fromkeys(name for row in rows for name in row.validation))
    training = []
    for row in rows:
        scores = (row.validation.get(metric) for metric in metrics)
        seconds = row.curves.seconds and round(row.curves.seconds)
        training.append([row.name, row.curves.step, seconds, row.best_step, *scores])
    yield from table(["run", "steps", "seconds", "best step", *metrics], training)


def _score_tables(rows: Sequence[ComparedRun], split: str) -> Iterator[str]:
    several = len(rows) > 1
    yield f"scores on {split}" + (f"; differences from {rows[0].name}" if several else "")
    compared = [(row.name, row.comparison) for row in rows if row.comparison]
    evaluations = {name: run.evaluation for name, run in compared if run.evaluation}
    scores = [pair for evaluation in evaluations.values() for pair in evaluation.scores.items()]
    intervals = {name: evaluation.intervals() for name, evaluation in evaluations.items()}
    heads = ["95 % interval", "items", *["difference", "95 % interval", "p-value"] * several]
    for metric in dict.fromkeys(name for name, score in scores if isinstance(score, float)):
        cells = []
        for name, comparison in compared:
            line: list[Any] = [name, None, None, None]
            if evaluation := comparison.evaluation:
                interval = intervals[name].get(metric)
                reach = f"[{interval[0]:.2f}, {interval[1]:.2f}]" if interval else None
                line[1:] = [evaluation.scores.get(metric), reach, len(evaluation.sources)]
            cells.append(line + _difference_cells(comparison.differences.get(metric)) * several)
        yield ""
        yield from table(["", metric, *heads], cells)


def _difference_cells(difference: Comparison | None) -> list[str]:
    if difference is None:
        return ["", "", ""]
    interval = f"[{difference.low:+.2f}, {difference.high:+.2f}]"
    return [f"{difference.difference:+.2f}", interval, f"{difference.p_value:.3f}"]


def _seed_tables(settings: Sequence[Setting]) -> Iterator[str]:
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


def _notes(rows: Sequence[ComparedRun]) -> list[str]:
    notes = [
        f"{row.name}: {row.comparison.note}"
        for row in rows
        if row.comparison and row.comparison.note
    ]
    return ["", *notes] if notes else []
