"""Header of a safetensors file, checked before weights are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from transduce.training.weight_names import names_today
from transduce.training.weights import opened

ORIGIN = "transduce_origin"
"""Header key of a run's weights: their origin, a step or a mean."""


def step_origin(step: int) -> str:
    """Origin of the weights after a step."""
    return f"of step {step}"


def mean_origin(count: int) -> str:
    """Origin of the mean of several checkpoints."""
    return f"a mean of {count} checkpoints"


def count_in_mean(origin: str) -> int:
    """Number of checkpoints averaged in weights of this origin; 0 for a single step."""
    found = re.fullmatch(r"a mean of (\d+) checkpoints", origin)
    return int(found[1]) if found else 0


class WeightsHeader(NamedTuple):
    """Header of a weights file. shapes: of the tensors, by name. texts: metadata."""

    shapes: Mapping[str, tuple[int, ...]]
    texts: Mapping[str, str]


def read_header(path: Path) -> WeightsHeader:
    """Read the header of a safetensors file, checking that its sizes fit the file.

    Raises RunError if it is missing, damaged or of a newer format.
    """
    with opened(path) as (file, texts):
        names = names_today(file.keys())
        shapes = {names[name]: tuple(file.get_slice(name).get_shape()) for name in names}
        return WeightsHeader(shapes, texts)
