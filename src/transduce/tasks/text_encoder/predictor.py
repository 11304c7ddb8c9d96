"""Base of predictors with an encoder of texts, in PyTorch or in the engine.  Imports no torch."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from transduce.engine.encoder import EngineEncoder
from transduce.engine.pair_shape import EncoderHead
from transduce.models.encoder_only_config import EncoderOnlyConfig
from transduce.tasks.predictors import OnePassPredictor
from transduce.tasks.text_encoder.native import NativeRun
from transduce.tasks.text_inputs import Row, vocabulary_rows
from transduce.text import Tokenizer

if TYPE_CHECKING:
    from torch import nn

A = TypeVar("A")


class EncoderPredictor(OnePassPredictor[A]):
    """A trained encoder with its tokenizer.  batch_tokens: positions of a batch in PyTorch, padding
    included."""

    batch_tokens = 4096

    def __init__(
        self, config: EncoderOnlyConfig, tokenizer: Tokenizer, natively: NativeRun | None
    ) -> None:
        """natively: the run in the engine; by default a new model in PyTorch."""
        self.config = config
        self.tokenizer = tokenizer
        self.encoder: EngineEncoder | None = None
        self._network = self.build
        if natively is None:
            _ = self.model
        else:
            self.encoder = natively.encoder(config, vocabulary_rows(tokenizer), self.head)
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

    def outputs(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        """The model's output for each row."""
        if self.encoder is not None:
            return self.encoder.outputs(rows)
        from transduce.tasks.text_batches import encode_batches

        encoded = encode_batches(self.model, rows, self.batch_tokens, self.config.segments)
        return [output.float().numpy() for output in encoded]
