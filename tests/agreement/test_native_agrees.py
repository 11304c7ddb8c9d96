"""The native engine: logits and cross-attention of the PyTorch model, for every configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from helpers.native import INSTRUCTIONS, needs_native, odd_stack
from helpers.stacks import KINDS
from transduce.engine.model import NativeModel, plain_weight, unsupported
from transduce.errors import DataError
from transduce.models.config import PRESETS, EncoderDecoderConfig
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.precision import FloatWeight, Precision
from transduce.nn.stack_configs import SsruDecoderConfig, TransformerConfig
from transduce.sequence import Padded

pytestmark = needs_native

TOLERANCE = 1e-4
SOURCES = ([5, 6, 7, 8, 3], [9, 3], [4, 5, 6, 7, 8, 9, 10, 3], [3])
SUPPORTED = {name: config for name, config in PRESETS.items() if unsupported(config) is None}


def built(config: EncoderDecoderConfig, seed: int = 0) -> EncoderDecoder:
    torch.manual_seed(seed)
    joint = config.tie == "three-way"
    model = build_encoder_decoder(config, 50, 50 if joint else 40, joint).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms that do something
            parameter.add_(0.03 * torch.randn(parameter.shape))
    return model


@torch.inference_mode()
def searched(model: Any, size: int) -> list[Tensor]:
    """Logits of a search that feeds several tokens at once and reorders hypotheses."""
    torch.manual_seed(1)
    state = model.start(Padded.from_rows(SOURCES))
    result = []
    for rows, t in (
        (None, 3),
        ([0, 0, 2, 2, 1, 1], 1),
        ([1, 0, 0, 5], 1),
        ([3, 2, 1], 2),
        ([2, 2, 0], 1),
    ):
        if rows is not None:
            state.select(torch.tensor(rows))
        ids = torch.randint(0, size, (len(rows or SOURCES), t))
        result.append(model.step(Padded.unpadded(ids), state))
    assert state.length == 8
    return result


def largest_difference(config: EncoderDecoderConfig, instructions: str | None = None) -> float:
    model = built(config)
    size = len(model.head.weight)
    own = searched(model, size)
    other = searched(NativeModel(model, config, instructions=instructions), size)
    return max(float((a - b).abs().max()) for a, b in zip(own, other, strict=True))


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
def test_int8_matrices_are_read_as_their_floats(
    precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SUPPORTED["student"]
    model = built(config)
    stored: dict[int, tuple[Any, Any]] = {}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                divisors = 127 / (parameter.abs().amax(1, keepdim=True) * 1.1)
                levels = (parameter * divisors).round().to(torch.int8)
                parameter.copy_(levels / divisors)
                stored[parameter.data_ptr()] = levels.numpy(), divisors.numpy()
    floats = searched(NativeModel(model, config, precision), len(model.head.weight))

    def as_stored(weight: Tensor) -> FloatWeight:
        buffers = stored.get(weight.data_ptr())
        return plain_weight(weight)._replace(levels=buffers and (lambda: buffers))

    monkeypatch.setattr("transduce.engine.model.plain_weight", as_stored)
    levels = searched(NativeModel(model, config, precision), len(model.head.weight))
    assert all(torch.equal(a, b) for a, b in zip(floats, levels, strict=True))


@pytest.mark.parametrize("preset", SUPPORTED)
def test_every_preset(preset: str) -> None:
    assert largest_difference(SUPPORTED[preset]) < TOLERANCE


@pytest.mark.parametrize("kind", KINDS, ids="-".join)
def test_every_kind_of_stack(kind: tuple[Any, Any, Any]) -> None:
    decoder = odd_stack(*kind)
    encoder = replace(decoder, n_layers=1, n_heads=2, d_head=None if kind[0] != "rotary" else 4)
    tie: Any = {"relu": "three-way", "gelu": "none"}.get(kind[2], "two-way")
    config = EncoderDecoderConfig(
        d_model=18,
        tie=tie,
        encoder=encoder,
        decoder=decoder,
        output_bias=kind[1] == "post",
        scale_embeddings=kind[2] != "silu",
    )
    assert largest_difference(config) < TOLERANCE


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("preset", ["tiny", "speller"])
def test_every_instruction_set(instructions: str, preset: str) -> None:
    assert largest_difference(SUPPORTED[preset], instructions) < TOLERANCE


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize(("precision", "error"), [("bf16", 0.02), ("int8", 0.05)])
def test_reduced_precision_is_close(instructions: str, precision: Precision, error: float) -> None:
    config = SUPPORTED["small"]
    model = built(config)
    own = searched(model, 50)
    other = searched(NativeModel(model, config, precision, instructions), 50)
    for a, b in zip(own, other, strict=True):
        assert 1e-5 < float((a - b).norm() / a.norm()) < error


@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_a_recurrent_unit_for_self_attention(instructions: str) -> None:
    decoder = SsruDecoderConfig(n_layers=3, n_heads=3, d_ff=20, activation="silu", dropout=0.0)
    encoder = TransformerConfig(n_layers=1, n_heads=3, d_ff=20, positions="none")
    config = EncoderDecoderConfig(d_model=27, encoder=encoder, decoder=decoder)
    assert largest_difference(config, instructions) < TOLERANCE


def test_a_model_beyond_the_engine_is_named() -> None:
    assert unsupported(PRESETS["rnn-dot"]) == "model.encoder.kind = 'recurrent'"
    assert unsupported(PRESETS["convolution"]) == "model.encoder.kind = 'convolution'"
    assert unsupported(object()) == "models other than encoder-decoders and decoders of text"


@pytest.mark.parametrize("precision", get_args(Precision))
@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_a_row_is_the_same_to_the_bit_in_every_batch(
    precision: Precision, instructions: str
) -> None:
    config = replace(SUPPORTED["small"], d_model=72)
    native = NativeModel(built(config), config, precision, instructions)
    chance = torch.Generator().manual_seed(0)
    sources = [
        torch.randint(4, 50, (int(n),), generator=chance).tolist()
        for n in torch.randint(1, 30, (40,), generator=chance)
    ]
    target = torch.randint(4, 50, (40, 5), generator=chance)

    def logits(rows: list[int]) -> Tensor:
        state = native.start(Padded.from_rows([sources[row] for row in rows]))
        return native.step(Padded.unpadded(target[rows]), state)

    together = logits(list(range(40)))
    for size in (1, 2, 3, 5, 13, 14, 27):
        for first in range(0, 40, size):
            rows = list(range(first, min(first + size, 40)))
            assert torch.equal(logits(rows), together[rows]), size


def test_outputs_attention_and_padding() -> None:
    config = replace(SUPPORTED["tiny"], decoder=odd_stack("alibi", "pre", "gelu"))
    model = built(config)
    native = NativeModel(model, config)
    source = Padded.from_rows(SOURCES)
    ids = torch.randint(4, 50, (4, 5))
    real = torch.ones(4, 5, dtype=torch.bool)
    real[1, :2] = real[3, :1] = False
    target = Padded(ids, real)
    with torch.inference_mode():
        own, other = model.start(source), native.start(source)
        a, b = model.advance(target, own), native.advance(target, other)
        torch.testing.assert_close(a.values[real], b.values[real], atol=1e-5, rtol=0)
        one = Padded.unpadded(ids[:, :1])
        logits, weights = model.step_attended(one, own)
        result, observed = native.step_attended(one, other)
        torch.testing.assert_close(result, logits, atol=1e-5, rtol=0)
        torch.testing.assert_close(observed, weights, atol=1e-6, rtol=0)


def test_a_sequence_beyond_learned_positions_is_the_same_error() -> None:
    config = replace(SUPPORTED["tiny"], encoder=odd_stack("learned", "pre", "relu"))
    model = built(config)
    source = Padded.unpadded(torch.randint(4, 50, (1, 33)))
    messages = []
    for one in (model, NativeModel(model, config)):
        with pytest.raises(DataError, match=r"more than 32 tokens, .* max_positions") as error:
            one.start(source)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


def test_positions_beyond_the_kept_table() -> None:
    for kind in ("sinusoidal", "sinusoidal-halves", "sinusoidal-marian", "rotary"):
        config = EncoderDecoderConfig(
            d_model=18,
            encoder=odd_stack(kind, "pre", "relu"),
            decoder=odd_stack(kind, "post", "relu"),
        )
        model = built(config)
        source = Padded.unpadded(torch.randint(4, 50, (1, 530)))
        target = Padded.unpadded(torch.randint(4, 50, (1, 530)))
        native = NativeModel(model, config)
        with torch.inference_mode():
            own = model(source, target)
            result = native.step(target, native.start(source))
        torch.testing.assert_close(result, own, atol=TOLERANCE, rtol=0)
