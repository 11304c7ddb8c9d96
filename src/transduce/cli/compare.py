"""`transduce compare`: several runs side by side."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transduce.cli.options import AS_THE_RECIPE, THIS_MACHINE, Decoding, Flag, Machine
from transduce.cli.output import print_lines
from transduce.cli.tables import table
from transduce.errors import DataError, SettingError

if TYPE_CHECKING:
    from transduce.experiments.compare import Standing
    from transduce.experiments.curves import Curves
    from transduce.tasks.task import Evaluation

BESIDE_SCORES = ("kind", "step", "seconds", "averaged")


@dataclass(frozen=True)
class Compared:
    """All that is said of the runs; the lists have an entry for each."""

    paths: Sequence[Path]
    names: Sequence[str]
    settings: Mapping[str, Sequence[Any]]
    curves: Sequence[Curves]
    kept: Sequence[Mapping[str, Any]]
    """The validation whose weights were kept."""
    standings: Sequence[Standing]


def compare(
    *runs: Path,
    split: Literal["test", "valid", "none"] = "test",
    plot: Path | None = None,
    json: Flag = False,
    decoding: Decoding = AS_THE_RECIPE,
    machine: Machine = THIS_MACHINE,
) -> None:
    """Put runs side by side: settings that differ, scores with intervals, curves.

    Scores are of each run's own data.  Where these are the same as the first run's, and the task
    has outputs, the difference to the first run is given with its 95 % confidence interval and
    the p-value of a paired bootstrap, as `evaluate --against` does.

    Parameters
    ----------
    runs
        Two or more run directories.
    split
        Which part of the recipes' data to predict for; none to look at the logs alone.
    plot
        Picture of the losses of validation and training to draw, .svg or .png.
    json
        Print one JSON object.
    """
    if len(runs) < 2:
        raise SettingError("comparing needs at least two runs")
    from transduce.experiments.compare import differing_settings, short_names
    from transduce.experiments.curves import (
        check_picture,
        draw_curves,
        kept_validation,
        read_curves,
    )

    if plot is not None:
        check_picture(plot)
    settings = differing_settings(runs)
    curves = [read_curves(run) for run in runs]
    kept = [kept_validation(run, one) for run, one in zip(runs, curves, strict=True)]
    names = short_names(runs)
    if plot is not None:
        draw_curves(dict(zip(names, curves, strict=True)), plot)
    standings = [] if split == "none" else _standings(runs, split, decoding, machine)
    compared = Compared(runs, names, settings, curves, kept, standings)
    if json:
        print_lines(json_format.dumps(_as_object(compared, split), ensure_ascii=False))
    else:
        print_lines(*_as_text(compared, split))


def _standings(
    runs: Sequence[Path], split: Literal["test", "valid"], decoding: Decoding, machine: Machine
) -> list[Standing]:
    """Each run evaluated, one model in memory at a time."""
    from transduce.experiments.compare import Standing, stand

    standings: list[Standing] = []
    first: Evaluation | None = None
    for run in runs:
        model = machine.load(run)
        options = decoding.over_any(model.predictor)
        try:
            evaluation = model.evaluate(split, None, options)
        except DataError as error:  # its data are not here; the others may be compared
            standings.append(Standing(None, note=str(error)))
            continue
        if not standings:
            first = evaluation
            standings.append(Standing(evaluation))
        else:
            standings.append(stand(first, evaluation))
    return standings


def _scores(kept: Mapping[str, Any]) -> dict[str, float]:
    """The scores in a line of the log."""
    return {name: value for name, value in kept.items() if name not in BESIDE_SCORES}


def _as_object(compared: Compared, split: str) -> dict[str, Any]:
    return {
        "runs": [
            {
                "run": str(path),
                "step": curves.step,
                "seconds": curves.seconds,
                "best_step": kept.get("step"),
                "validation": _scores(kept),
            }
            for path, curves, kept in zip(
                compared.paths, compared.curves, compared.kept, strict=True
            )
        ],
        "settings": compared.settings,
        "split": split,
        "evaluations": [_standing_as_object(standing) for standing in compared.standings],
    }


def _standing_as_object(standing: Standing) -> dict[str, Any]:
    found = standing.evaluation
    return {
        "scores": dict(found.scores) if found else {},
        "intervals": found.intervals() if found else {},
        "items": len(found.sources) if found else 0,
        "against_first": {
            name: {
                "difference": difference.difference,
                "low": difference.low,
                "high": difference.high,
                "p_value": difference.p_value,
            }
            for name, difference in standing.differences.items()
        },
        "note": standing.note or None,
    }


def _as_text(compared: Compared, split: str) -> Iterator[str]:
    yield "settings that differ"
    if compared.settings:
        rows = [[name, *values] for name, values in compared.settings.items()]
        yield from table(["", *compared.names], rows)
    else:
        yield "none"
    yield ""
    yield "training, and validation of the weights that were kept"
    scores = list(dict.fromkeys(name for kept in compared.kept for name in _scores(kept)))
    training = [
        [name, curves.step, curves.seconds and round(curves.seconds), kept.get("step")]
        + [kept.get(score) for score in scores]
        for name, curves, kept in zip(compared.names, compared.curves, compared.kept, strict=True)
    ]
    yield from table(["run", "steps", "seconds", "best step", *scores], training)
    if compared.standings:
        yield ""
        yield from _evaluations(compared, split)


def _evaluations(compared: Compared, split: str) -> Iterator[str]:
    """A small table for each metric; then why some runs are not in it."""
    found = [standing.evaluation for standing in compared.standings]
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
    yield f"scores on {split}; differences are to {compared.names[0]}"
    for metric in metrics:
        rows = []
        for name, standing in zip(compared.names, compared.standings, strict=True):
            one, difference = standing.evaluation, standing.differences.get(metric)
            low, high = intervals[name].get(metric, (None, None))
            row: list[Any] = [name, one.scores.get(metric) if one else None]
            row.append(None if low is None else f"[{low:.2f}, {high:.2f}]")
            row.append(len(one.sources) if one else None)
            if difference is not None:
                interval = f"[{difference.low:+.2f}, {difference.high:+.2f}]"
                row += [f"{difference.difference:+.2f}", interval, f"{difference.p_value:.3f}"]
            else:
                row += ["", "", ""]
            rows.append(row)
        yield ""
        heads = ["", metric, "95 % interval", "items", "difference", "95 % interval", "p-value"]
        yield from table(heads, rows)
    notes = [
        f"{name}: {standing.note}"
        for name, standing in zip(compared.names, compared.standings, strict=True)
        if standing.note
    ]
    if notes:
        yield ""
        yield from notes
