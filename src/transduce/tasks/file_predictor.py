"""Base of predictors that write texts about files: recordings, images."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from transduce.decoding.options import DecodingOptions
from transduce.decoding.session import SequencePredictor
from transduce.errors import DataError, InputError
from transduce.tasks.prediction import OnDevice
from transduce.tasks.predictors import EvaluationSet, MeasuredPredictor
from transduce.text import Tokenizer

S = TypeVar("S")
A = TypeVar("A")


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
        return one_line(self.tokenizer, tokens)


def one_line(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Text of tokens, on a single line."""
    return " ".join(tokenizer.decode(list(tokens)).splitlines())
