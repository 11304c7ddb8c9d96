"""Base sections of recipes: data of a task, and the splits of data."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from transduce.config import section
from transduce.config_paths import expanded_path

Root = Annotated[str, BeforeValidator(expanded_path)]
"""A directory that relative paths start from; may hold `~` and `$VARIABLE`."""


@section
class RootedData:
    """Base of all data sections; by itself for tasks without data."""

    root: Root = "."
    """Directory that relative paths start from; may hold `~` and `$VARIABLE`.  A relative root
    starts from the current directory."""


@section
class TrainingData(RootedData):
    """Base of data sections with something to train on."""

    train: Any = None
    """Needed for training; an imported model has none."""


@section
class SplitsConfig(TrainingData):
    """Base of data sections with splits: a section narrows the types of `train`, `valid`, `test`.

    Items that `valid` and `test` do not name are set aside from the training data.
    """

    valid: Any = None
    """Without it, `hold_out` of the training data is set aside."""
    test: Any = None
    """Without it and without `valid`, another `hold_out` of the training data is set aside."""
    hold_out: Annotated[float, Field(gt=0, le=0.25)] = 0.02
    """Share of the training data that is set aside where no file is given."""
