"""Base of predictors with an encoder of texts, in PyTorch or in the engine.  Imports no torch."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from transduce.engine.encoder import EngineEncoder
from transduce.engine.pair_shape import EncoderHead
from transduce.tasks.predictors import Inputs, OnePassPredictor
from transduce.tasks.text_encoder.native import NativeRun
from transduce.tasks.text_inputs import (
    EncoderRecipe,
    Row,
    encode_counting_cuts,
    vocabulary_rows,
    warn_of_cuts,
)
from transduce.tasks.unknown_tokens import UnknownTokens
from transduce.text import Tokenizer

if TYPE_CHECKING:
    from torch import nn

A = TypeVar("A")


class EncoderPredictor(OnePassPredictor[A]):
    """A trained encoder with its tokenizer.  batch_tokens: positions of a batch in PyTorch, padding
    included."""

    batch_tokens = 4096
    recipe: EncoderRecipe

    def __init__(
        self, recipe: EncoderRecipe, tokenizer: Tokenizer, natively: NativeRun | None = None
    ) -> None:
        """natively: the run in the engine; by default a new model in PyTorch."""
        self.recipe = recipe
        self.config = recipe.model
        self.tokenizer = tokenizer
        self.unknown = UnknownTokens(tokenizer)
        self.encoder: EngineEncoder | None = None
        self._network = self.build
        if natively is None:
            _ = self.model
        else:
            self.encoder = natively.encoder(self.config, vocabulary_rows(tokenizer), self.head)
            self._network = natively.network

    @functools.cached_property
    def model(self) -> Any:  # type: ignore[override]
        """The model in PyTorch."""
        return self._network()

    @property
    @abstractmethod
    def head(self) -> EncoderHead:
        """The head in the engine."""

    @abstractmethod
    def build(self) -> nn.Module:
        """The model in PyTorch, with any weights."""

    def rows(self, inputs: Inputs, numbers: Iterable[int]) -> list[Row]:
        """Inputs as the model reads them, with warnings about truncation and unknown tokens.

        numbers: of the inputs, from 0, in a longer sequence.
        """
        max_length = self.recipe.text.max_length
        rows, n_cut = encode_counting_cuts(self.tokenizer, inputs, max_length)
        warn_of_cuts(n_cut, len(rows), max_length)
        self.warn_of_unknown(inputs, (row.ids for row in rows), numbers)
        return rows

    def warn_of_unknown(
        self,
        inputs: Iterable[Sequence[str]],
        rows: Iterable[Container[int]],
        numbers: Iterable[int],
    ) -> None:
        """Warn once of unknown tokens among the ids of some inputs."""
        self.unknown.check(inputs, rows, (f"line {number + 1}" for number in numbers))

    def outputs(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """The model's output for each row."""
        if self.encoder is not None:
            return self.encoder.outputs(rows)
        from transduce.tasks.text_batches import encode_batches

        encoded = encode_batches(self.model, rows, self.batch_tokens, self.config.segments)
        return [output.float().numpy() for output in encoded]
