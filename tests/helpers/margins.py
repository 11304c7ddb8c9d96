"""Answers that another order of summation does not change: those whose choices are no near ties."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import nn

NOISE = 1e-5
"""Relative; a hundred times the rounding of float32, as large as tolerances of scores."""
T = TypeVar("T")


@contextmanager
def shaken(model: nn.Module, seed: int) -> Iterator[None]:
    """Weights with a little noise, for a while."""
    chance = torch.Generator().manual_seed(seed)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + NOISE * torch.randn(parameter.shape, generator=chance))
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, weights in zip(model.parameters(), before, strict=True):
                parameter.copy_(weights)


def steady(model: nn.Module, answers: Callable[[], list[T]], shakes: int = 2) -> list[int]:
    """Indexes of the answers, such as ids or texts, that noise in the weights does not change."""
    wanted = answers()
    same = [True] * len(wanted)
    for seed in range(shakes):
        with shaken(model, seed):
            same = [a and b == c for a, b, c in zip(same, answers(), wanted, strict=True)]
    return [i for i, unchanged in enumerate(same) if unchanged]
