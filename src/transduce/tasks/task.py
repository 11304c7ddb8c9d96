"""Protocols of tasks: recipe, prediction, predictor, evaluation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import Field
from torch import nn

from transduce.config import section
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError
from transduce.html_table import html_table
from transduce.metrics.measure import make_metric, measure
from transduce.metrics.metric import Metric, TooLongError
from transduce.metrics.significance import (
    Comparison,
    bootstrap_interval,
    few_items,
    paired_bootstrap,
)
from transduce.tasks.prediction import Prediction as Prediction
from transduce.tasks.sections import RootedData
from transduce.training.config import TrainingConfig
from transduce.training.trainer import Outcome

logger = logging.getLogger("transduce")

Split = Literal["train", "valid", "test"]
Example = tuple[tuple[str, ...], str]
"""An input, with the parts of `Predictor.inputs`, and one reference answer."""


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


class Predictor(Protocol):
    """Trained model with the conversion of inputs and outputs."""

    @property
    def model(self) -> nn.Module:
        """The network."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the texts that make one input, such as ("source",) or ("question", "context");
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
        """One answer per input, in order.

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
    parse: Callable[[Mapping[str, Any], str], Recipe]
    """Settings, and the name of their file for messages -> recipe."""
    train: Callable[[Any, Path, bool], Outcome]
    """Recipe, run directory, True to resume -> outcome."""
    load: Callable[[Any, Path, str], Predictor]
    """Recipe, run directory, device -> trained model."""
    pipeline_tag: str = ""
    """Name of the task on the Hugging Face Hub; empty if it has none."""

    @property
    def name(self) -> str:
        """Name of the task in recipes."""
        return self.recipe.task


@dataclass(frozen=True)
class Evaluation:
    """Outputs of a model on a test set, with their scores."""

    scores: Mapping[str, float | str]
    """Scores by name, signatures beside them; percentages, unless the name says otherwise."""
    sources: Sequence[str]
    """Inputs, one line each."""
    inputs: Sequence[tuple[str, ...]] = field(default=(), repr=False, kw_only=True)
    """Inputs of the model, if `sources` differ from them: several texts, or texts of several
    lines."""
    by_name: bool = field(default=False, kw_only=True)
    """True if `sources` are only names of the inputs, such as images that are not files."""
    hypotheses: Sequence[str] = field(default=(), repr=False)
    """Answers; empty if only probabilities are scored."""
    references: Sequence[Sequence[str]] = field(default=(), repr=False)
    """Reference answers of each input."""
    language: str = ""
    """Language code of the answers, required by some metrics."""
    other_scores: Mapping[str, float] = field(default_factory=dict, kw_only=True)
    """Scores of outputs beside the answers, such as the transcripts of translated speech; they have
    no intervals and no comparison."""

    def __repr__(self) -> str:
        numbers = [
            f"{name} {value:.4g}" for name, value in self.scores.items() if isinstance(value, float)
        ]
        return f"<Evaluation of {len(self.sources):,} items: {', '.join(numbers) or 'no scores'}>"

    def measured_by(self, metrics: Sequence[str]) -> Evaluation:
        """The same outputs, scored by these keys of `METRICS`.

        Raises DataError for a task without outputs, SettingError for an unknown name.
        """
        if not self.hypotheses:
            raise DataError("this task has no outputs to measure by other metrics; leave them out")
        scores = measure(metrics, self.hypotheses, self.references, self.language)
        return replace(self, scores=scores, other_scores={})

    def _repr_html_(self) -> str:
        """The scores as a table, for a notebook."""
        rows = [("items", len(self.sources)), *self.scores.items(), *self.other_scores.items()]
        return html_table(["score", ""], rows)

    def against(self, other: Sequence[str]) -> dict[str, Comparison]:
        """Paired bootstrap of these outputs over `other` ones for the same sources, by metric.

        Empty for a single item.  A metric for which one of `other` is too long is skipped with a
        warning.
        """
        if not self.hypotheses:
            raise DataError("this task has no outputs to compare line by line")
        if len(other) != len(self.hypotheses):
            raise DataError(
                f"cannot compare {len(other)} outputs with {len(self.hypotheses)} evaluated ones; "
                "give one line per item"
            )
        result: dict[str, Comparison] = {}
        if len(self.hypotheses) < 2:
            return result  # one item has no spread
        for name, metric in self._metrics().items():
            try:
                result[name] = paired_bootstrap(metric, other, self.hypotheses, self.references)
            except TooLongError as error:
                logger.warning("%s; skipping it", error)
        return result

    @property
    def few(self) -> str:
        """Warning that these are too few items for reliable scores; empty if they are enough, or if
        only probabilities were measured."""
        return few_items(len(self.hypotheses))

    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % confidence interval of each score; empty for fewer than two answers."""
        if len(self.hypotheses) < 2:
            return {}
        return {
            name: bootstrap_interval(metric, self.hypotheses, self.references)
            for name, metric in self._metrics().items()
        }

    def _metrics(self) -> dict[str, Metric]:
        names = [name for name, value in self.scores.items() if isinstance(value, float)]
        return {name: make_metric(name, self.language) for name in names}
