"""Reader of the log of a training: curves and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import RunError
from transduce.support.limits import from_json
from transduce.training.checkpoints import best_scores_of
from transduce.training.weights_header import ORIGIN, read_header, step_origin

BESIDE_SCORES = ("kind", "step", "seconds", "averaged")


@dataclass(frozen=True)
class Curves:
    """The lines of a run's `metrics.jsonl`, in order."""

    train: Sequence[Mapping[str, Any]]
    validation: Sequence[Mapping[str, Any]]

    @property
    def step(self) -> int | None:
        """Last logged step."""
        return max((int(line["step"]) for line in (*self.train, *self.validation)), default=None)

    @property
    def seconds(self) -> float | None:
        """Wall-clock time up to the last step."""
        lines = (*self.train, *self.validation)
        return max((float(line.get("seconds", 0.0)) for line in lines), default=None)

    @property
    def averaged(self) -> Mapping[str, Any] | None:
        """Validation of the final average of checkpoints, if there is any."""
        return next((line for line in reversed(self.validation) if "averaged" in line), None)


def read_curves(run: Path) -> Curves:
    """Read the log of a run; empty if it was not trained here."""
    path = run / "metrics.jsonl"
    kinds: dict[str, list[dict[str, Any]]] = {"train": [], "validation": []}
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    for line in text.splitlines():
        try:
            record = from_json(line)
            float(record["step"]), float(record["loss"])
            kinds[record["kind"]].append(record)
        except (ValueError, KeyError, TypeError):
            continue  # damaged, or being written when the run was killed
    return Curves(kinds["train"], kinds["validation"])


def kept_validation(run: Path, curves: Curves) -> Mapping[str, Any]:
    """Validation record of the weights kept by the run, by step or lowest loss; empty if none."""
    if curves.averaged is not None:
        return curves.averaged
    try:
        origin = read_header(run / "weights.safetensors").texts.get(ORIGIN)
    except RunError:  # a run without weights can still be compared by its log
        origin = None
    for line in curves.validation:
        if origin == step_origin(line["step"]):
            return line
    return min(curves.validation, key=lambda line: float(line["loss"]), default={})


def kept_scores(run: Path) -> dict[str, float]:
    """Validation scores of the weights kept by the run; empty if unknown."""
    averaged = read_curves(run).averaged
    return best_scores_of(run) if averaged is None else scores_in(averaged)


def scores_in(line: Mapping[str, Any]) -> dict[str, float]:
    """Scores in a validation record."""
    return {name: value for name, value in line.items() if name not in BESIDE_SCORES}
