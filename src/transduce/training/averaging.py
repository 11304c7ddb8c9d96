"""A moving average of the weights, which generalises better than the last weights do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from transduce.training.weights import load_weights, weights_of


class MovingAverage:
    """Exponential moving average: average ← decay · average + (1 - decay) · weights.

    At step n the decay is at most (1 + n) / (10 + n), so that the first weights are forgotten.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: tensor.clone() for name, tensor in weights_of(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights as they are after `step`."""
        decay = min(self.decay, (1 + step) / (10 + step))
        weights = weights_of(model)
        averages = [self.weights[name] for name in weights]
        torch._foreach_lerp_(averages, list(weights.values()), 1 - decay)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """The model with the averaged weights, for as long as the context lasts."""
        own = {name: tensor.clone() for name, tensor in weights_of(model).items()}
        load_weights(model, self.weights, "the moving average")
        try:
            yield
        finally:
            load_weights(model, own, "the model")

    def to_device_of(self, model: nn.Module) -> None:
        """Move the average to where the model is."""
        device = next(model.parameters()).device
        self.weights = {name: tensor.to(device) for name, tensor in self.weights.items()}


def averaged_weights(model: nn.Module, ema: MovingAverage | None) -> dict[str, Tensor]:
    """The weights that would be served now: the average if there is one."""
    return weights_of(model) if ema is None else ema.weights
