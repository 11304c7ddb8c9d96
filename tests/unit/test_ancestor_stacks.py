"""Recurrent and convolutional stacks: settings, sizes, reach, equations, padding."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from helpers.small_network import count
from transduce.errors import SettingError
from transduce.models.config import PRESETS, EncoderDecoderConfig
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.models.stacks import build_decoder, build_encoder
from transduce.nn.convolution import (
    BytenetBlock,
    BytenetDecoder,
    ConvolutionDecoder,
    ConvolutionEncoder,
    TextCnnEncoder,
    unfolded,
)
from transduce.nn.recurrent import RecurrentDecoder, RecurrentEncoder
from transduce.nn.stack_configs import (
    BytenetConfig,
    ConvolutionDecoderConfig,
    ConvolutionEncoderConfig,
    DotContext,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    TextCnnConfig,
    TransformerConfig,
    max_sequence_length,
)
from transduce.sequence import Padded
from transduce.settings.sections import parse, to_dict

# --- settings --------------------------------------------------------------------------------


def refusal(**settings: Any) -> str:
    with pytest.raises(SettingError) as caught:
        parse(EncoderDecoderConfig, settings, "r.toml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_stack_without_a_kind_is_a_transformer() -> None:
    config = parse(EncoderDecoderConfig, {"encoder": {"n_layers": 2}, "decoder": {}})
    assert config.encoder == TransformerConfig(n_layers=2)
    assert config.decoder == TransformerConfig()


def test_kinds_are_read_and_written() -> None:
    settings = {
        "encoder": {"kind": "text-cnn", "widths": [2, 3]},
        "decoder": {"kind": "recurrent", "cell": "gru", "context": {"kind": "dot"}},
    }
    config = parse(EncoderDecoderConfig, settings)
    assert config.encoder == TextCnnConfig(widths=(2, 3))
    assert config.decoder == RecurrentDecoderConfig(cell="gru", context=DotContext())
    assert parse(EncoderDecoderConfig, to_dict(config)) == config


def test_mistakes_are_answered_for_the_kind_that_is_meant() -> None:
    assert refusal(encoder={"n_layer": 3}) == (
        "r.toml: encoder.n_layer is not a setting; did you mean 'n_layers'?"
    )
    recurrent = {"kind": "recurrent"}
    assert refusal(encoder=recurrent | {"n_layer": 3}) == (
        "r.toml: encoder.n_layer is not a setting; did you mean 'n_layers'?"
    )
    assert refusal(encoder=recurrent | {"d_ff": 3}).startswith(
        "r.toml: encoder.d_ff is not a setting; did you mean 'decoder.d_ff'?"
    )
    assert refusal(decoder=recurrent | {"context": {"kind": "dot", "widht": 3}}) == (
        "r.toml: decoder.context.widht is not a setting; did you mean 'decoder.context.width'?"
    )
    assert refusal(decoder=recurrent | {"context": {"width": 3}}) == (
        "r.toml: decoder.context.kind is missing; it is one of 'additive', 'dot', 'fixed', "
        "'general'"
    )
    assert refusal(decoder={"kind": "text-cnn"}).startswith(
        "r.toml: decoder.kind is 'text-cnn'; it must be one of 'transformer', 'recurrent', "
        "'convolution', 'bytenet'"
    )
    assert refusal(encoder=5) == "r.toml: encoder must be a section of settings, not 5"


def test_a_setting_of_a_kind_that_was_not_written_asks_for_the_kind() -> None:
    assert refusal(encoder={"cell": "gru"}) == (
        "r.toml: encoder.cell is not a setting; it needs kind = 'recurrent'"
    )
    assert refusal(decoder={"n_layers": 2, "context": {"kind": "dot"}}) == (
        "r.toml: decoder.context is not a setting; it needs kind = 'recurrent'"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 15, "encoder": {"kind": "recurrent"}}, "d_model = 15 must be even"),
        (
            {"encoder": {"kind": "convolution", "width": 4}},
            "width = 4 of a convolution must be odd",
        ),
        ({"encoder": {"kind": "bytenet", "width": 4}}, "width = 4 of a convolution must be odd"),
        ({"encoder": {"kind": "text-cnn", "widths": []}}, "encoder.widths"),
        ({"d_model": 2, "encoder": {"kind": "text-cnn"}}, "3 widths exceed d_model = 2"),
        ({"encoder": {"kind": "recurrent", "cell": "rnn"}}, "encoder.cell"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    stacks = {"encoder": {"n_heads": 1}, "decoder": {"n_heads": 1}}
    assert message in refusal(**stacks | settings)


def test_longest_sequence() -> None:
    learned = TransformerConfig(positions="learned", max_positions=9)
    assert max_sequence_length(learned) == 9
    assert max_sequence_length(replace(learned, positions="rotary")) is None
    assert max_sequence_length(ConvolutionDecoderConfig(max_positions=9)) == 9
    for config in (RecurrentEncoderConfig(), RecurrentDecoderConfig(), TextCnnConfig()):
        assert max_sequence_length(config) is None


def test_kinds_are_built() -> None:
    assert isinstance(build_encoder(RecurrentEncoderConfig(), 8), RecurrentEncoder)
    assert isinstance(build_encoder(ConvolutionEncoderConfig(), 8), ConvolutionEncoder)
    assert isinstance(build_encoder(TextCnnConfig(), 8), TextCnnEncoder)
    assert isinstance(build_decoder(RecurrentDecoderConfig(), 8), RecurrentDecoder)


# --- sizes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [name for name in PRESETS if name.startswith(("rnn-", "conv", "bytenet"))]
)
def test_ancestors_are_as_large_as_the_tiny_transformer(name: str) -> None:
    with torch.device("meta"):
        tiny, other = (
            count(build_encoder_decoder(PRESETS[preset], 8000, 8000, joint=True))
            for preset in ("tiny", name)
        )
    assert 0.9 * tiny <= other <= 1.1 * tiny


def lstm_size(d_input: int, d_hidden: int) -> int:
    return 4 * d_hidden * (d_input + d_hidden + 2)


def test_rnn_general_by_formula() -> None:
    m = 168
    encoder = 2 * 2 * lstm_size(m, m // 2)  # two layers, two directions
    decoder = 2 * lstm_size(m, m)
    first, output, score = m * 2 * m + 2 * m, 2 * m * m + m, m * m
    model = build_encoder_decoder(PRESETS["rnn-general"], 100, 100, joint=True)
    assert count(model) == 100 * m + encoder + decoder + first + output + score


@pytest.mark.parametrize(("d_model", "shares"), [(9, (3, 3, 3)), (10, (4, 3, 3)), (3, (1, 1, 1))])
def test_windows_share_the_width(d_model: int, shares: tuple[int, ...]) -> None:
    windows = TextCnnEncoder(TextCnnConfig(), d_model).windows
    assert tuple(window.out_channels for window in windows) == shares


# --- what is seen ----------------------------------------------------------------------------


def reach(encoder: nn.Module, t: int, at: int) -> list[int]:
    """The positions that the output at one position depends on."""
    x = torch.randn(1, t, 8, requires_grad=True)
    encoder.eval()(Padded.unpadded(x)).values[0, at].abs().sum().backward()
    assert x.grad is not None
    return x.grad[0].abs().sum(1).nonzero()[:, 0].tolist()


def test_dilations_double_and_start_again() -> None:
    plain = ConvolutionEncoderConfig(n_layers=3, width=3)
    assert reach(ConvolutionEncoder(plain, 8), 31, 15) == list(range(12, 19))
    growing = replace(plain, dilation_growth=2)
    assert reach(ConvolutionEncoder(growing, 8), 31, 15) == list(range(8, 23))
    six = replace(growing, n_layers=6)
    dilations = [layer.convolution.dilation for layer in ConvolutionEncoder(six, 8).layers]
    assert dilations == [(1,), (2,), (4,), (8,), (16,), (1,)]


@pytest.mark.parametrize(
    ("width", "observed"), [(1, [5]), (2, [4, 5]), (3, [4, 5, 6]), (4, [3, 4, 5, 6])]
)
def test_windows_stand_around_their_position(width: int, observed: list[int]) -> None:
    encoder = TextCnnEncoder(TextCnnConfig(widths=(width,)), 8)
    assert reach(encoder, 11, 5) == observed


def test_windows_agree_with_a_loop() -> None:
    encoder = TextCnnEncoder(TextCnnConfig(widths=(3,)), 8).eval()
    x = torch.randn(2, 8)  # shorter than the window
    zeros = torch.zeros(1, 8)
    framed = torch.cat([zeros, x, zeros])
    (window,) = encoder.windows
    for i, result in enumerate(encoder(Padded.unpadded(x[None])).values[0]):
        expected = (window.weight * framed[i : i + 3].T).sum((1, 2)) + window.bias
        torch.testing.assert_close(result, expected.relu(), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_layer_of_convs2s_agrees_with_a_loop() -> None:
    """Gehring et al. 2017: h = GLU(W X + b), d = W_d h + g, c = Σ softmax(d · z) z, then h + c."""
    config = ConvolutionDecoderConfig(n_layers=1, positions="none")
    decoder = ConvolutionDecoder(config, 8).eval()
    memory, target = torch.randn(5, 8), torch.randn(4, 8)
    state = decoder.start(Padded.unpadded(memory[None]))
    result = decoder(Padded.unpadded(target[None]), state).values[0]
    (layer,), (residual,) = decoder.layers, decoder.residuals
    convolution = layer.convolution.convolution
    before = torch.cat([torch.zeros(2, 8), residual.norm(target)])
    for i, g in enumerate(target):
        a, b = ((convolution.weight * before[i : i + 3].T).sum((1, 2)) + convolution.bias).chunk(2)
        h = a * b.sigmoid()
        d = layer.query.weight @ h + layer.query.bias + g
        weights = torch.softmax(memory @ d / 8**0.5, 0)
        expected = decoder.norm(g + h + weights @ memory)
        torch.testing.assert_close(result[i], expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_bytenet_agrees_with_a_loop() -> None:
    """Kalchbrenner et al. 2016, Figure 3: two blocks, of dilation 1 and 2, over an unfolding."""
    decoder = BytenetDecoder(BytenetConfig(n_layers=2), 8).eval()
    memory, target = torch.randn(3, 8), torch.randn(5, 8)
    state = decoder.start(Padded.unpadded(memory[None]))
    result = decoder(Padded.unpadded(target[None]), state).values[0]
    at = torch.arange(5)[None]
    assert torch.equal(unfolded(state, at)[0, 3:], torch.zeros(2, 8)), "the source is over"
    x = target.clone()
    x[:3] += decoder.source(memory)
    for layer, residual, dilation in zip(decoder.layers, decoder.residuals, (1, 2), strict=True):
        assert isinstance(layer, BytenetBlock)
        h = layer.reduced_norm(layer.reduce(residual.norm(x).relu())).relu()
        past = torch.cat([torch.zeros(2 * dilation, 4), h])
        taps = layer.convolution.convolution.weight.unbind(2)
        bias = layer.convolution.convolution.bias
        rows = [
            sum(tap @ past[i + k * dilation] for k, tap in enumerate(taps)) + bias for i in range(5)
        ]
        x = x + layer.expand(layer.convolved_norm(torch.stack(rows)).relu())
    torch.testing.assert_close(result, decoder.norm(x), rtol=1e-4, atol=1e-5)


def test_padding_between_tokens_changes_nothing() -> None:
    """Neighbours are the real ones next to each other, wherever they stand."""
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    real = torch.tensor([[False, True, False, True, True, False, False, True, True, False]])
    values = torch.full((1, 10, 8), 50.0, dtype=torch.float64)
    values[real] = x[0]
    for config in (
        RecurrentEncoderConfig(n_layers=2),
        ConvolutionEncoderConfig(positions="sinusoidal"),
        BytenetConfig(n_layers=3),
        TextCnnConfig(),
    ):
        encoder = build_encoder(config, 8).double().eval()
        expected = encoder(Padded.unpadded(x)).values[0]
        result = encoder(Padded(values, real, "any")).values[real]
        torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)
