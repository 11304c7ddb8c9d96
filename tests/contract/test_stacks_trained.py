"""Promises of every stack to training: gradients, saved weights, precisions, empty rows."""

import copy

import pytest
import safetensors.torch
import torch
from torch import nn

from helpers.stacks import LENGTHS, Decoding, M, lay, vectors
from transduce.nn.attention import record_into
from transduce.sequence import Padded

# --- training, saving, precision -------------------------------------------------------------


def assert_gradient_everywhere(module: nn.Module, output: Padded) -> None:
    (output.values[output.real] * torch.randn(M, dtype=torch.float64)).sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_gradient_reaches_every_encoder_parameter(encoder: nn.Module) -> None:
    assert_gradient_everywhere(encoder, encoder.train()(lay(vectors(LENGTHS))))


def test_gradient_reaches_every_decoder_parameter(decoding: Decoding) -> None:
    assert_gradient_everywhere(decoding, decoding.train()(lay(vectors(LENGTHS))))


def saved_and_loaded(module: nn.Module) -> nn.Module:
    """A module of other weights that was given those of `module` by way of a safetensors file."""
    other = copy.deepcopy(module)
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    other.load_state_dict(safetensors.torch.load(safetensors.torch.save(module.state_dict())))
    return other


@pytest.mark.usefixtures("no_gradient")
def test_saving_and_loading_an_encoder_changes_nothing(encoder: nn.Module) -> None:
    source = lay(vectors(LENGTHS))
    assert torch.equal(saved_and_loaded(encoder)(source).values, encoder(source).values)


@pytest.mark.usefixtures("no_gradient")
def test_saving_and_loading_a_decoder_changes_nothing(decoding: Decoding) -> None:
    target = lay(vectors(LENGTHS))
    assert torch.equal(saved_and_loaded(decoding)(target).values, decoding(target).values)


def in_dtype(padded: Padded, dtype: torch.dtype) -> Padded:
    return padded.with_values(padded.values.to(dtype))


# Width of error allowed in each precision, on outputs of about unit size.
PRECISIONS = {torch.float32: 1e-4, torch.bfloat16: 0.25}


@pytest.mark.usefixtures("no_gradient")
def test_encoder_in_other_precisions(encoder: nn.Module) -> None:
    source = lay(vectors(LENGTHS), side="left")
    exact = encoder(source).values[source.real]
    assert exact.dtype == torch.float64
    for dtype, error in PRECISIONS.items():
        result = encoder.to(dtype)(in_dtype(source, dtype)).values[source.real]
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), exact, rtol=0, atol=error)


@pytest.mark.usefixtures("no_gradient")
def test_decoder_in_other_precisions(decoding: Decoding) -> None:
    target = lay(vectors(LENGTHS), side="left")
    exact = decoding(target).values[target.real]
    assert exact.dtype == torch.float64
    for dtype, error in PRECISIONS.items():
        if decoding.memory is not None:
            decoding.memory = in_dtype(decoding.memory, dtype)
        result = decoding.to(dtype)(in_dtype(target, dtype)).values[target.real]
        assert result.dtype == dtype
        torch.testing.assert_close(result.double(), exact, rtol=0, atol=error)


# --- rows of nothing but padding -------------------------------------------------------------


def with_an_empty_row(told: str = "any") -> Padded:
    padded = lay(vectors(LENGTHS), told=told)
    real = padded.real.clone()
    real[1] = False
    return Padded(padded.values, real, padded.padding)


def assert_finite(module: nn.Module, output: Padded) -> None:
    assert output.values.isfinite().all()
    output.values[output.real].sum().backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("recording", [False, True])
def test_empty_row_is_no_nan_in_an_encoder(encoder: nn.Module, recording: bool) -> None:
    record_into(encoder, on=recording)
    for padding in ("right", "any"):
        assert_finite(encoder, encoder(with_an_empty_row(padding)))


@pytest.mark.parametrize("recording", [False, True])
def test_empty_row_is_no_nan_in_a_decoder(decoding: Decoding, recording: bool) -> None:
    record_into(decoding, on=recording)
    for padding in ("right", "any"):
        if decoding.memory is not None:
            decoding.memory = with_an_empty_row(padding)
        assert_finite(decoding, decoding(with_an_empty_row(padding)))
