"""Labels of a classifier: `labels.json`, in the order of its scores."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from transduce.errors import RunError, printable_name
from transduce.training.weight_files import read_json_of

logger = logging.getLogger("transduce")

FILE = "labels.json"


@dataclass(frozen=True)
class LabelPrediction:
    """Label of an input, with the probability of each label; empty for a blank input."""

    text: str = ""
    """The most probable label."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Probabilities by label; they sum to 1."""

    def __repr__(self) -> str:
        probability = self.probabilities.get(self.text, 0.0)
        return f"LabelPrediction(text={self.text!r}, probability={probability:.4g})"

    @staticmethod
    def of(labels: Sequence[str], scores: Any) -> LabelPrediction:
        """From the score (n_labels,) of each label, an array of numbers before the softmax."""
        values = np.asarray(scores, np.float64)
        probabilities = np.exp(values - values.max())
        probabilities /= probabilities.sum()
        best = labels[int(values.argmax())]
        return LabelPrediction(best, dict(zip(labels, probabilities.tolist(), strict=True)))

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        probability = self.probabilities.get(self.text)
        return {
            "label": self.text,
            "probability": probability,
            "probabilities": dict(self.probabilities),
        }


def load_labels(run: Path, file: str = FILE) -> tuple[str, ...]:
    """The labels, or other names, of a run directory.  Raises RunError when they are missing or
    damaged."""
    path = run / file
    labels = read_json_of(run, file, "run of a classifier")
    strings = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
    names = tuple(map(printable_name, labels)) if strings else ()
    if not names or "" in names or len(set(names)) < len(names):
        raise RunError(f"{path} is damaged: expected a list of distinct names, none of them blank")
    return names
