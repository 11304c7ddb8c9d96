"""Base of the recipes of all tasks.  Imports no torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from transduce.settings.sections import section
from transduce.tasks.sections import RootedData
from transduce.training.config import TrainingConfig

Split = Literal["train", "valid", "test"]


@section
class Recipe:
    """Base of all recipes: task, seed, data, model, training; a task adds sections of its own."""

    task: str
    """A key of `TASKS`."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Random seed of the initial weights, dropout and the order of the data; also of augmentation,
    token masking and the cropping of long texts, in tasks with them."""
    data: RootedData
    model: Any
    training: TrainingConfig = TrainingConfig()
