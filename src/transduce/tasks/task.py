"""Protocols of tasks: recipe, prediction, predictor, evaluation."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from transduce.decoding.options import DecodingOptions
from transduce.tasks.recipe import Recipe, Split

if TYPE_CHECKING:
    import torch
    from torch import nn

    from transduce.nn.precision import Precision
    from transduce.tasks.evaluation import Evaluation
    from transduce.tasks.training import PreparedTask
    from transduce.training.trainer import Outcome


class OnDevice:
    """Base of predictors with a PyTorch model."""

    model: nn.Module

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(self.model.parameters()).device


class Prediction(Protocol):
    """Output of a model for an input."""

    @property
    def text(self) -> str:
        """Answer as a single line; a translation has as many lines as its source."""

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON object: answer, probabilities, scores, other candidates."""


Example = tuple[tuple[str, ...], str]
"""An input, with the parts of `Predictor.inputs`, and a reference answer."""


class Predictor(Protocol):
    """Trained model with the conversion of inputs and outputs."""

    @property
    def model(self) -> nn.Module:
        """The network."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the texts that make an input, such as ("source",) or ("question", "context");
        fields of a JSON record, or parts of a line between tabs."""

    @property
    def options(self) -> DecodingOptions | None:
        """Decoding options of the recipe; None for a task without decoding."""

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> Sequence[Prediction]:
        """An answer per input, in order.

        Texts do not depend on the rest of the batch; of scores and vectors the last bits may, as
        the rounding of a sum depends on the size of the batch.

        options: by default the recipe's.  first: number of the first input in a longer sequence,
        for messages and for the random streams of sampling.
        """

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Scores on a split of the recipe's data, or on the examples given instead."""

    def facts(self) -> dict[str, Any]:
        """Sizes and similar facts for `transduce info`."""


class Task(NamedTuple):
    """Entry of `TASKS`: recipe section and functions of a task."""

    recipe: type[Recipe]
    """Section of its recipes."""
    prepare: Callable[[Any, Path], PreparedTask]
    """Recipe, run directory -> data, model and loss for the training loop."""
    load: Callable[[Any, Path, str], Predictor]
    """Recipe, run directory, device -> trained model."""
    explain: Callable[[Any, tuple[str, ...], int], Any] | None = None
    """Trained model, the parts of an input, its number -> the `Explanation` of
    `explain/explanation.py`."""
    load_native: Callable[[Any, Path, Precision, int | None], Predictor] | None = None
    """Recipe, run directory, precision, threads -> trained model in the native engine, without
    PyTorch; None for a task whose models need it."""
    live: Callable[[Any, str], Any] | None = None
    """Trained model, name of the run -> the `LiveModel` of `explain/live.py`; None if none can."""
    pipeline_tag: str = ""
    """Name of the task on the Hugging Face Hub; empty if it has none."""

    def train(self, recipe: Any, run: Path, resume: bool) -> Outcome:
        """Train from a recipe into a run directory.  resume: continue an interrupted run."""
        from transduce.tasks.training import find_device, prepare_training
        from transduce.training.fine_tuning import BaseRun
        from transduce.training.trainer import train

        started = prepare_training(recipe.data, recipe.training, recipe.seed)
        task = self.prepare(recipe, run)
        task.model.to(find_device(recipe.training.device))
        fine_tune = getattr(recipe, "fine_tune", None)
        base = BaseRun(fine_tune, task.adapt, task.reinit) if fine_tune else None
        return train(task, recipe.training, run, resume, base, started=started)

    @property
    def name(self) -> str:
        """Name of the task in recipes."""
        return self.recipe.task


def imported(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported when the function is first called."""

    def call(*arguments: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments)

    return call
