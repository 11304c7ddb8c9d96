"""Bases of predictors: answers in a single pass, and scores of answers against references."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from transduce.decoding.options import DecodingOptions
from transduce.errors import DataError
from transduce.support.work import chunks
from transduce.tasks.prediction import OnDevice
from transduce.tasks.recipe import Split
from transduce.tasks.task import Example

if TYPE_CHECKING:
    from transduce.tasks.evaluation import Evaluation

MEASURED_TOGETHER = 512
"""Inputs of a test set that are answered together, sorted by length."""

A = TypeVar("A")

Inputs = Sequence[tuple[str, ...]]
"""Inputs, each with the parts of `Predictor.inputs`."""


def one_line(texts: Sequence[str]) -> str:
    """Input as a single line with tabs between its texts, as in `transduce predict`."""
    return "\t".join(" ".join(text.replace("\t", " ").splitlines()) for text in texts)


class OnePassPredictor(OnDevice, ABC, Generic[A]):
    """Base of predictors without decoding.  prediction: class of the answers."""

    inputs: tuple[str, ...] = ("text",)
    options: DecodingOptions | None = None
    prediction: type[A]

    def blank(self, texts: tuple[str, ...]) -> A:
        """Answer to a blank input."""
        return self.prediction()

    @abstractmethod
    def answers(self, inputs: Inputs, numbers: Sequence[int]) -> Iterable[A]:
        """Answers to inputs that are not blank, in order.  numbers: theirs in a longer sequence."""

    def predict(
        self,
        inputs: Sequence[tuple[str, ...]],
        options: DecodingOptions | None = None,
        first: int = 0,
    ) -> list[A]:
        """Answer each input, in order; blank inputs get an empty answer.

        `options` has no effect, as nothing is decoded.
        """
        predictions = [self.blank(texts) for texts in inputs]
        filled = [i for i, texts in enumerate(inputs) if any(text.strip() for text in texts)]
        numbers = [first + i for i in filled]
        answers = self.answers([inputs[i] for i in filled], numbers)
        for i, answer in zip(filled, answers, strict=True):
            predictions[i] = answer
        return predictions


class EvaluationSet(NamedTuple):
    """Inputs with their reference answers.

    sources: the inputs, a line each.  texts: the inputs as `predict` takes them.  stored: in
    their place inputs that the data hold already read, of which the sources are only names.
    transcripts: spoken words of each, where they are not the references.
    """

    sources: Sequence[str]
    references: Sequence[Sequence[str]]
    texts: Sequence[tuple[str, ...]] = ()
    stored: Any = None
    transcripts: Sequence[str] = ()


class MeasuredPredictor(ABC):
    """Base of predictors whose answers are compared with references.

    items: name of the inputs, in messages.
    """

    items: ClassVar[str]

    @property
    @abstractmethod
    def metrics(self) -> Sequence[str]:
        """Keys of `METRICS`."""

    @property
    def language(self) -> str:
        """Language code of the answers, required by some metrics."""
        return ""

    @abstractmethod
    def held_out(self, split: Split) -> EvaluationSet:
        """Inputs of a split of the recipe's data."""

    def reference(self, answer: str) -> str:
        """A reference as metrics compare it with the text of an answer."""
        return answer

    def examples(self, examples: Iterable[Example]) -> EvaluationSet:
        """Inputs with a reference each."""
        pairs = list(examples)
        texts = [parts for parts, _ in pairs]
        references = [[self.reference(answer)] for _, answer in pairs]
        return EvaluationSet([one_line(parts) for parts in texts], references, texts)

    def predictions(self, data: EvaluationSet, options: DecodingOptions | None) -> list[Any]:
        """Answers to the inputs, in order."""
        predictor: Any = self
        answers: list[Any] = []
        for chunk in chunks(data.texts, MEASURED_TOGETHER):
            answers += predictor.predict(chunk, options, len(answers))
        return answers

    def completed(
        self, evaluation: Evaluation, data: EvaluationSet, predictions: Sequence[Any]
    ) -> Evaluation:
        """The evaluation with scores beside those of the answers."""
        return evaluation

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Answer held-out inputs, or examples, and compare the answers with their references."""
        from transduce.metrics.measure import measure
        from transduce.tasks.evaluation import Evaluation

        data = self.held_out(split) if examples is None else self.examples(examples)
        if not data.references:
            raise DataError(f"no {self.items} to evaluate")
        predictions = self.predictions(data, options)
        answers = [prediction.text for prediction in predictions]
        scores = measure(self.metrics, answers, data.references, self.language)
        evaluation = Evaluation(
            scores,
            data.sources,
            answers,
            data.references,
            self.language,
            inputs=data.texts,
            by_name=not data.texts,
        )
        return self.completed(evaluation, data, predictions)
