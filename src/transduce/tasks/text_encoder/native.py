"""Encoders of runs in the native engine.  Imports no torch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transduce.engine.encoder import EngineEncoder
from transduce.engine.pair_shape import EncoderHead, check_settings, encoder_shape
from transduce.engine.weights import check_biases, default_threads
from transduce.errors import needing_torch
from transduce.models.encoder_only_config import EncoderOnlyConfig
from transduce.nn.kernels.precision import Precision
from transduce.training.plain_weights import read_plain_weights

if TYPE_CHECKING:
    from torch import nn

logger = logging.getLogger("transduce")


@dataclass(frozen=True)
class NativeRun:
    """The engine for the encoder of a run.

    load: the model in PyTorch, for a call that needs it.  threads: of the engine and of PyTorch; by
    default PyTorch's choice.
    """

    path: Path
    precision: Precision
    threads: int | None
    load: Callable[[], nn.Module]

    def encoder(self, config: EncoderOnlyConfig, rows: int, head: EncoderHead) -> EngineEncoder:
        """The encoder, with an embedding of `rows`, under a head.

        Raises RunError for a run that is damaged or needs PyTorch, SettingError if the engine is
        unavailable.
        """
        check_settings(config, self.path)
        stored = read_plain_weights(self.path / "weights.safetensors")
        weights = {n: weight for n, weight in stored.items() if not n.startswith("next_sentence.")}
        embedding = weights.get("front_end.embedding.weight")
        if head.dense == "gelu-norm" and embedding is not None:  # tied; files have the first
            weights["head.vocabulary.weight"] = embedding
        check_biases(weights)
        shape = encoder_shape(config, rows, head, self.precision)
        return EngineEncoder(shape, weights, lambda: self.threads or default_threads())

    def network(self) -> nn.Module:
        """The model in PyTorch."""
        with needing_torch("this call"):
            import torch

        logger.info("loading PyTorch for this call")
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return self.load()
