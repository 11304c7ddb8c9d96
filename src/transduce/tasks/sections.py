"""Base sections of recipes: data of a task, and the splits of data."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from transduce.settings.paths import expanded_path
from transduce.settings.sections import section

Root = Annotated[str, BeforeValidator(expanded_path)]
"""Directory that relative paths start from; may contain `~` and `$VARIABLE`."""


@section
class RootedData:
    """Base of all data sections, used directly by tasks without data."""

    root: Root = "."
    """Directory that relative paths start from; may contain `~` and `$VARIABLE`.  A relative root
    starts from the current directory."""


@section
class TrainingData(RootedData):
    """Base of data sections with training data."""

    train: Any = None
    """Required for training; an imported model has none."""


@section
class SplitsConfig(TrainingData):
    """Base of data sections with splits: a section narrows the types of `train`, `valid`, `test`.

    Splits not named by `valid` and `test` are held out from the training data.
    """

    valid: Any = None
    """By default, `hold_out` of the training data."""
    test: Any = None
    """By default, another `hold_out` of the training data, unless `valid` is given."""
    hold_out: Annotated[float, Field(gt=0, le=0.25)] = 0.02
    """Share of the training data to hold out for each split without a file."""
