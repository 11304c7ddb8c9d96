"""Header of a safetensors file, read before any weights or memory for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from transduce.training.weight_names import names_today
from transduce.training.weights import opened

ORIGIN = "transduce_origin"
"""In the head of a run's weights: what they are, of a step or a mean."""


def step_origin(step: int) -> str:
    """The origin of weights that are those after a step."""
    return f"of step {step}"


def mean_origin(count: int) -> str:
    """The origin of weights that are the mean of so many checkpoints."""
    return f"a mean of {count} checkpoints"


def count_in_mean(origin: str) -> int:
    """Of how many checkpoints weights of this origin are the mean; 0 where they are none."""
    found = re.fullmatch(r"a mean of (\d+) checkpoints", origin)
    return int(found[1]) if found else 0


class WeightsHeader(NamedTuple):
    """shapes: of the tensors, by name.  texts: what stands beside them."""

    shapes: Mapping[str, tuple[int, ...]]
    texts: Mapping[str, str]


def read_header(path: Path) -> WeightsHeader:
    """The head of a safetensors file, whose sizes are those that the file has room for.

    Raises RunError when it is missing, damaged or of a newer format than this version reads.
    """
    with opened(path) as (file, texts):
        names = names_today(file.keys())
        shapes = {names[name]: tuple(file.get_slice(name).get_shape()) for name in names}
        return WeightsHeader(shapes, texts)
