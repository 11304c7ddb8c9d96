"""Exponential moving average of the weights, which often generalises better than the last."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from transduce.training.sharding import own_part
from transduce.training.weights import load_weights, weights_of


class MovingAverage:
    """Exponential moving average: average ← decay · average + (1 - decay) · weights.  At step n the
    decay is at most (1 + n) / (10 + n), so that the initial weights lose their influence."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: tensor.clone() for name, tensor in weights_of(model).items()}
        self._pairs: tuple[list[Tensor], list[Tensor]] | None = None

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Update the averages with the weights after `step`; takes the same model each time."""
        decay = min(self.decay, (1 + step) / (10 + step))
        averages, weights = self._pairs or self._pair_up(model)
        torch._foreach_lerp_(averages, weights, 1 - decay)

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Use the averaged weights in the model within the context."""
        weights = {name: tensor.clone() for name, tensor in weights_of(model).items()}
        load_weights(model, self.weights, "the moving average")
        try:
            yield
        finally:
            load_weights(model, weights, "the model")

    def _pair_up(self, model: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
        """Averages and trained parameters, cached since traversing a deep model is slow."""
        live = weights_of(model, detached=False)
        moving = [
            name
            for name, tensor in live.items()
            if tensor.requires_grad or not isinstance(tensor, nn.Parameter)
        ]
        self._pairs = (
            [own_part(self.weights[name]) for name in moving],
            [own_part(live[name]) for name in moving],
        )
        return self._pairs


def averaged_weights(model: nn.Module, ema: MovingAverage | None) -> dict[str, Tensor]:
    """Weights to serve now: the average, if there is any."""
    return weights_of(model) if ema is None else ema.weights
