"""Matrices of linear layers in bfloat16: cast once in a step and all at once, where autocast would
cast each by itself, in each batch of a step."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn


class NarrowWeights:
    """Copies of the matrices that a model trains and uses in a single linear layer each."""

    def __init__(self, model: nn.Module) -> None:
        layers = [module for module in model.modules() if type(module) is nn.Linear]
        every = (p for module in model.modules() for p in module._parameters.values())
        uses = collections.Counter(map(id, every))
        self._layers = [m for m in layers if m.weight.requires_grad and uses[id(m.weight)] == 1]
        self._wide: list[Tensor] = [layer.weight for layer in self._layers]
        self._narrow: list[Tensor] = [nn.Parameter(w.detach().bfloat16()) for w in self._wide]

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Copies in place of the matrices within, for forward and backward passes."""
        with torch.no_grad():
            torch._foreach_copy_(self._narrow, self._wide)
        try:
            for layer, narrow in zip(self._layers, self._narrow, strict=True):
                layer._parameters["weight"] = cast(nn.Parameter, narrow)
            yield
        finally:
            for layer, wide in zip(self._layers, self._wide, strict=True):
                layer._parameters["weight"] = cast(nn.Parameter, wide)

    def add_gradients(self) -> None:
        """Add the gradients of the copies to those of the matrices, in float32."""
        for wide, narrow in zip(self._wide, self._narrow, strict=True):
            if narrow.grad is None:
                continue
            wide.grad = narrow.grad.float() if wide.grad is None else wide.grad + narrow.grad
            narrow.grad = None
