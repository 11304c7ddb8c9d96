"""Protocols of tasks: recipe, prediction, predictor, evaluation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

from pydantic import Field
from torch import nn

from transduce.config import section
from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError
from transduce.metrics.measure import make_metric
from transduce.metrics.metric import Metric, TooLongError
from transduce.metrics.significance import (
    Comparison,
    bootstrap_interval,
    few_items,
    paired_bootstrap,
)
from transduce.tasks.sections import RootedData
from transduce.training.config import TrainingConfig
from transduce.training.trainer import Outcome

logger = logging.getLogger("transduce")

TextStream = Generator[str, None, None]
"""Parts of a text as they come; closing it ends the search."""
Split = Literal["train", "valid", "test"]
Example = tuple[tuple[str, ...], str]
"""An input, as `Predictor.inputs` names its parts, and one right answer."""


@section
class Recipe:
    """Base of all recipes: task, seed, data, model, training; a task adds sections of its own."""

    task: str
    """A key of `TASKS`."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Decides all that is random: first weights, dropout, the order of the data, and where a task
    has them augmentation, hidden tokens, and cuts of long texts."""
    data: RootedData
    model: Any
    training: TrainingConfig = TrainingConfig()


class Prediction(Protocol):
    """What a model says to one input."""

    @property
    def text(self) -> str:
        """The answer in one line; a translation in as many as its source has."""

    def fields(self) -> dict[str, Any]:
        """All there is to say, as a JSON object: probabilities, scores, other candidates."""


class Predictor(Protocol):
    """A trained model with all that turns inputs into answers."""

    @property
    def model(self) -> nn.Module:
        """The network."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the texts that make one input, such as ("source",) or ("question", "context");
        fields of a JSON record, or parts of a line between tabs."""

    @property
    def options(self) -> DecodingOptions | None:
        """How the recipe decodes; None where nothing is decoded."""

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> Sequence[Prediction]:
        """One answer for each input, in order, whatever else is in the batch.

        options: by default the recipe's.  first: number of the first input in a longer row of
        them, for messages and for the random streams of sampling.
        """

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Scores on a split of the recipe's data, or on the examples given instead."""

    def facts(self) -> dict[str, Any]:
        """Sizes and such, for `transduce info`."""


class Task(NamedTuple):
    """A row of `TASKS`."""

    recipe: type[Recipe]
    """Section of its recipes."""
    parse: Callable[[Mapping[str, Any], str], Recipe]
    """Settings, and the name of their file for messages -> recipe."""
    train: Callable[[Any, Path, bool], Outcome]
    """Recipe, run directory, whether to resume -> how it ended."""
    load: Callable[[Any, Path, str], Predictor]
    """Recipe, run directory, device -> trained model."""
    pipeline_tag: str = ""
    """Name of the task on the Hugging Face Hub; empty where it has none."""

    @property
    def name(self) -> str:
        """Name of the task in recipes."""
        return self.recipe.task


@dataclass(frozen=True)
class Evaluation:
    """A model's outputs on a test set, and what they are worth."""

    scores: Mapping[str, float | str]
    """Scores by name, signatures beside them; percentages, unless the name says otherwise."""
    sources: Sequence[str]
    """What was asked, one line each."""
    inputs: Sequence[tuple[str, ...]] = field(default=(), repr=False, kw_only=True)
    """The same as the model was given it, where `sources` are not all of it: several texts, or
    texts of several lines."""
    by_name: bool = field(default=False, kw_only=True)
    """Whether `sources` only name what was asked, such as images that are no files."""
    hypotheses: Sequence[str] = field(default=(), repr=False)
    """What was answered; none where the scores are of probabilities alone."""
    references: Sequence[Sequence[str]] = field(default=(), repr=False)
    """For each the right answers."""
    language: str = ""
    """Code of the language of the answers, which some metrics need."""

    def __repr__(self) -> str:
        numbers = [
            f"{name} {value:.4g}" for name, value in self.scores.items() if isinstance(value, float)
        ]
        return f"<Evaluation of {len(self.sources):,} items: {', '.join(numbers) or 'no scores'}>"

    def against(self, other: Sequence[str]) -> dict[str, Comparison]:
        """Paired bootstrap of these outputs over `other` ones for the same sources, by metric.

        Nothing where there is but one item.  A metric that one of `other` is too long for is left
        out with a warning.
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
        """Says that these are too few items to trust the scores; empty where they are enough, and
        where probabilities alone were measured, of items of any length."""
        return few_items(len(self.hypotheses))

    def intervals(self) -> dict[str, tuple[float, float]]:
        """95 % confidence interval of each score; none where less than two items were answered."""
        if len(self.hypotheses) < 2:
            return {}
        return {
            name: bootstrap_interval(metric, self.hypotheses, self.references)
            for name, metric in self._metrics().items()
        }

    def _metrics(self) -> dict[str, Metric]:
        names = [name for name, value in self.scores.items() if isinstance(value, float)]
        return {name: make_metric(name, self.language) for name in names}
