"""Bases of predictors: answers in a single pass, texts about files, an answer or an error per
input."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    runtime_checkable,
)

from transduce.decoding.backend import Cancelled, OwnOptions, SearchBackend
from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import SequencePredictor, TextStream
from transduce.errors import CancelledError, DataError, InputError, SettingError, TransduceError
from transduce.support.work import chunks
from transduce.tasks.recipe import Split
from transduce.tasks.task import Example, OnDevice
from transduce.text import Tokenizer

if TYPE_CHECKING:
    from transduce.tasks.evaluation import Evaluation
    from transduce.tasks.task import Prediction, Predictor


@runtime_checkable
class CanContinue(Protocol):
    """Continues a text, with a tokenizer for prompts and continuations alike."""

    tokenizer: Tokenizer
    options: DecodingOptions
    backend: SearchBackend
    window: int

    def stream(self, text: str, options: DecodingOptions | None) -> TextStream:
        """The continuation of a text in parts."""


@runtime_checkable
class CanTranslate(Protocol):
    """Turns texts into texts, with a tokenizer for each side."""

    source: Tokenizer
    target: Tokenizer


GivenOptions = DecodingOptions | Mapping[str, Any] | None
"""Options of an input: all of them, only changes to the recipe's, or the recipe's."""


def attempt(
    predictor: Predictor,
    inputs: Sequence[tuple[str, ...]],
    options: Sequence[GivenOptions | TransduceError],
    first: int = 0,
    cancelled: Cancelled | None = None,
) -> Sequence[Prediction | TransduceError]:
    """Result of each input, or its error, in order.

    predictor: of a run.  inputs: tuples of texts.  options: of each input, or the error in it.
    first: number of the first input in a longer sequence.  cancelled: called between steps with the
    index of an input, from 0; without token-by-token decoding, before the first.
    """
    each = [_resolved(own_options, predictor.options) for own_options in options]
    if isinstance(predictor, SequencePredictor):
        decoded = [own_options for own_options in each if own_options is not None]
        return predictor.attempt([text for (text,) in inputs], decoded, first, cancelled)
    if cancelled is not None:
        gone = CancelledError("cancelled before completion")
        each = [gone if cancelled(i) else own_options for i, own_options in enumerate(each)]
    answers: list[Prediction | TransduceError] = []
    pairs = zip(inputs, each, strict=True)
    for own_options, group in itertools.groupby(pairs, key=lambda pair: pair[1]):
        alike = [parts for parts, _ in group]
        if isinstance(own_options, TransduceError):
            answers += [own_options] * len(alike)
        else:
            answers += _predicted(predictor, alike, own_options, first + len(answers))
    return answers


def _resolved(
    call_options: GivenOptions | TransduceError, defaults: DecodingOptions | None
) -> OwnOptions | None:
    """Options of an input merged with the recipe's, or the error in them."""
    if call_options is None or isinstance(call_options, DecodingOptions | TransduceError):
        return call_options or defaults
    if defaults is None:
        return SettingError("this task does not decode; remove the decoding options")
    try:
        return defaults.with_settings(call_options)
    except SettingError as error:
        return error


def _predicted(
    predictor: Predictor,
    inputs: Sequence[tuple[str, ...]],
    options: DecodingOptions | None,
    first: int,
) -> list[Prediction | TransduceError]:
    """Answers to inputs with equal options; those that cannot be read leave the others alone."""
    answers: list[Prediction | TransduceError] = []
    while inputs:
        try:
            return [*answers, *predictor.predict(inputs, options, first)]
        except InputError as error:
            before = inputs[: error.number - first]
            answers += predictor.predict(before, options, first) if before else ()
            answers.append(error)
            inputs, first = inputs[len(before) + 1 :], error.number + 1
        except SettingError as error:
            return [*answers, *[error] * len(inputs)]
    return answers


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

    @abstractmethod
    def predict(
        self, inputs: Inputs, options: DecodingOptions | None = None, first: int = 0
    ) -> Sequence[Any]:
        """As `Predictor.predict`."""

    def predictions(self, data: EvaluationSet, options: DecodingOptions | None) -> list[Any]:
        """Answers to the inputs, in order."""
        answers: list[Any] = []
        for chunk in chunks(data.texts, MEASURED_TOGETHER):
            answers += self.predict(chunk, options, len(answers))
        return answers

    def completed(
        self, evaluation: Evaluation, data: EvaluationSet, predictions: Sequence[Any]
    ) -> Evaluation:
        """The evaluation with scores beside those of the answers.

        data: inputs and references.  predictions: one for each input.
        """
        return evaluation

    def evaluate(
        self,
        split: Split,
        examples: Iterable[Example] | None = None,
        options: DecodingOptions | None = None,
    ) -> Evaluation:
        """Answer held-out inputs, or examples, and compare the answers with their references.

        split: of the recipe's data.  options: of decoding; by default the recipe's.
        """
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


S = TypeVar("S")


@dataclass(eq=False, kw_only=True, repr=False)
class FilePredictor(OnDevice, SequencePredictor[S, A], MeasuredPredictor):
    """Predictor that writes texts about files.

    cache: directory of the recipe's data, once read.
    """

    recipe: Any
    tokenizer: Tokenizer
    cache: Path

    @abstractmethod
    def read_file(self, path: str) -> S:
        """Input of the model in a file, or for a blank path.  Raises DataError for another file."""

    def read(self, inputs: Sequence[Any], first: int) -> list[S | InputError]:
        """Each file, or the error in it; inputs that have been read stay."""
        sources: list[S | InputError] = []
        for number, entry in enumerate(inputs, first):
            try:
                sources.append(self.read_file(entry) if isinstance(entry, str) else entry)
            except DataError as error:
                sources.append(InputError(number, str(error)))
        return sources

    @property
    def output_tokenizer(self) -> Tokenizer:
        """Tokenizer of the texts."""
        return self.tokenizer

    @property
    def language(self) -> str:
        """Language code of the texts."""
        language: str = self.recipe.evaluation.target_language
        return language

    @property
    def metrics(self) -> Sequence[str]:
        """Metrics of the recipe."""
        metrics: Sequence[str] = self.recipe.evaluation.metrics
        return metrics

    def reference(self, answer: str) -> str:
        """A text on a single line."""
        return " ".join(answer.split())

    def predictions(self, data: EvaluationSet, options: DecodingOptions | None) -> list[A]:
        """Texts about the files."""
        sources = data.sources if data.stored is None else data.stored
        return list(self.each(sources, options, 0, self.answer))

    def facts(self) -> dict[str, Any]:
        """Size of the vocabulary."""
        return {"vocabulary": self.tokenizer.size}

    def text_of(self, tokens: Sequence[int]) -> str:
        """Text of tokens, on a single line."""
        return decode_line(self.tokenizer, tokens)


def decode_line(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Text of tokens, on a single line."""
    return " ".join(tokenizer.decode(list(tokens)).splitlines())
