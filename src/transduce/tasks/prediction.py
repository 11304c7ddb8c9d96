"""Predictions: the output of a model for an input, in every task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import nn


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
