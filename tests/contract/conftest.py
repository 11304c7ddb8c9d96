"""Stacks of every kind."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from helpers.stacks import DECODERS, ENCODERS, MEMORY_LENGTHS, Decoding, lay, vectors


@pytest.fixture(params=list(ENCODERS))
def encoder(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(1)
    return ENCODERS[request.param]().double().eval()


@pytest.fixture(params=list(DECODERS))
def decoding(request: pytest.FixtureRequest) -> Decoding:
    torch.manual_seed(1)
    build, looks_at_memory = DECODERS[request.param]
    memory = lay(vectors(MEMORY_LENGTHS)) if looks_at_memory else None
    return Decoding(build(), memory).double().eval()


@pytest.fixture
def no_gradient() -> Iterator[None]:
    with torch.no_grad():
        yield
