"""The network's layers: dropout, feed-forward, order of norms, padding left out."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers.small_network import MODEL, STACK, count, ids
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.attention import (
    CrossAttention,
    SelfAttention,
    StepContext,
    attention_with_weights,
)
from transduce.nn.feed_forward import FeedForward, GatedFeedForward
from transduce.nn.masks import Mask
from transduce.nn.positions import Unpadding, row_step
from transduce.nn.residual import Dropout, PostNorm, PreNorm
from transduce.nn.stack_configs import TransformerConfig
from transduce.nn.transformer import TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded

# --- dropout ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", [TransformerEncoder, TransformerDecoder])
def test_dropout_stands_where_the_settings_put_it(
    stack: type[TransformerEncoder | TransformerDecoder],
) -> None:
    config = replace(
        STACK, n_layers=1, dropout=0.1, attention_dropout=0.2, feed_forward_dropout=0.3
    )
    modules = dict(stack(config, 16).named_modules())
    result = {name: module.p for name, module in modules.items() if isinstance(module, Dropout)}
    result |= {
        name: module.dropout
        for name, module in modules.items()
        if isinstance(module, SelfAttention | CrossAttention)
    }
    expected = {
        "dropout": 0.1,
        "layers.0.self_attention": 0.2,
        "layers.0.self_attention_residual.dropout": 0.1,
        "layers.0.feed_forward.dropout": 0.3,
        "layers.0.feed_forward_residual.dropout": 0.1,
    }
    if stack is TransformerDecoder:
        expected |= {
            "layers.0.cross_attention": 0.2,
            "layers.0.cross_attention_residual.dropout": 0.1,
        }
    assert result == expected


@pytest.mark.parametrize("place", ["dropout", "attention_dropout", "feed_forward_dropout"])
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_each_dropout_acts_in_training_alone(place: str, activation: str) -> None:
    stack = replace(STACK, activation=activation, **{place: 0.5})
    model = build_encoder_decoder(replace(MODEL, encoder=stack, decoder=stack), 11, 11, joint=True)
    batch = ids([4, 5, 6, 3], [7, 3]), ids([2, 5, 6], [2, 4])
    assert not torch.equal(model(*batch), model(*batch))
    model.eval()
    assert torch.equal(model(*batch), model(*batch))
    assert torch.equal(model(*batch), without_dropout(model)(*batch))


def without_dropout(model: EncoderDecoder) -> EncoderDecoder:
    """A model of the same weights, built without dropout, in training mode."""
    feed_forward = model.encoder.layers[0].feed_forward
    activation = "swiglu" if isinstance(feed_forward, GatedFeedForward) else "relu"
    stack = replace(STACK, activation=activation)
    plain = build_encoder_decoder(replace(MODEL, encoder=stack, decoder=stack), 11, 11, joint=True)
    plain.load_state_dict(model.state_dict())
    return plain


def test_residual_dropout_acts_on_the_sublayers_output() -> None:
    """With everything dropped only x is left: section 5.4's "before it is added"."""
    x = torch.randn(2, 3, 16)
    post, pre = PostNorm(16, dropout=1.0), PreNorm(16, dropout=1.0)
    torch.testing.assert_close(post(x, lambda y: y + 7), nn.functional.layer_norm(x, [16]))
    assert torch.equal(pre(x, lambda y: y + 7), x)


def test_norm_orders_are_what_they_say() -> None:
    x = torch.randn(2, 3, 16)
    norm = nn.functional.layer_norm
    torch.testing.assert_close(PostNorm(16, 0.0)(x, torch.exp), norm(x + x.exp(), [16]))
    torch.testing.assert_close(PreNorm(16, 0.0)(x, torch.exp), x + norm(x, [16]).exp())


def test_embedding_dropout_acts_on_embeddings_plus_positions() -> None:
    encoder = TransformerEncoder(replace(STACK, dropout=0.5), 16)
    observed: list[Tensor] = []
    encoder.layers[0].register_forward_pre_hook(lambda _, args: observed.append(args[0]))
    source = Padded.unpadded(torch.randn(2, 6, 16))
    encoder(source)
    whole = encoder.positions.embed(source.values, torch.arange(6))
    dropped = observed[0] == 0
    assert 0.3 < dropped.float().mean() < 0.7
    torch.testing.assert_close(observed[0], whole.masked_fill(dropped, 0.0) * 2)


def test_attention_dropout_acts_on_the_weights() -> None:
    value = torch.eye(50)  # the output is then the dropped weights themselves
    query, key = torch.randn(2, 50, 50)
    output, weights = attention_with_weights(query, key, value, Mask(), dropout=0.5)
    dropped = output == 0
    assert 0.4 < dropped.float().mean() < 0.6
    torch.testing.assert_close(output, weights.masked_fill(dropped, 0.0) * 2)
    torch.testing.assert_close(weights.sum(-1), torch.ones(50))


# --- feed-forward ----------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_feed_forward_is_equation_2(activation: str) -> None:
    network = FeedForward(8, 20, activation, dropout=0.0)
    x = torch.randn(3, 8)
    inner = x @ network.inner.weight.T + network.inner.bias
    bent = inner.clamp(min=0) if activation == "relu" else inner * (1 + (inner / 2**0.5).erf()) / 2
    expected = bent @ network.outer.weight.T + network.outer.bias
    torch.testing.assert_close(network(x), expected)


def test_swiglu_is_its_formula_and_has_no_bias() -> None:
    network = GatedFeedForward(8, 20, dropout=0.0)
    assert count(network) == 3 * 8 * 20
    x = torch.randn(3, 8)
    gate, inner = (x @ part.T for part in network.gate_inner.weight.chunk(2))
    expected = (gate * gate.sigmoid() * inner) @ network.outer.weight.T
    torch.testing.assert_close(network(x), expected)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_dropout_drops_the_share_asked_for_and_keeps_the_mean(p: float) -> None:
    torch.manual_seed(3)
    x = torch.ones(999, 1001, requires_grad=True)
    dropped = Dropout(p)(x)
    zeros = (dropped == 0).double()
    tolerance = 5 * math.sqrt(p * (1 - p) / x.numel())
    assert abs(zeros.mean().item() - p) < tolerance
    torch.testing.assert_close(
        dropped[dropped != 0], torch.full_like(dropped[dropped != 0], 1 / (1 - p))
    )
    # Neighbours, whose bits come of one draw, are as independent as others.
    for lag in (1, 2, 3, 4):
        both = (zeros.flatten()[lag:] * zeros.flatten()[:-lag]).mean().item()
        assert abs(both - p * p) < 5 * p * math.sqrt((1 - p * p) / x.numel()) + 1e-4
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())


@pytest.mark.parametrize("p", [0.99, 1 - 2**-7, 0.9999, 0.99999, 0.999995])
def test_dropout_of_nearly_all_keeps_the_share_asked_for(p: float) -> None:
    torch.manual_seed(3)
    n = 2_000_000
    kept = int((Dropout(p)(torch.ones(n)) != 0).sum())
    assert abs(kept - n * (1 - p)) < 5 * math.sqrt(n * (1 - p)) + n * (1 - p) / 1000


def test_dropout_follows_the_seed_and_rests_in_evaluation() -> None:
    dropout, x = Dropout(0.5), torch.randn(7, 3, 5).transpose(0, 2)
    torch.manual_seed(1)
    first = dropout(x)
    second = dropout(x)
    torch.manual_seed(1)
    assert torch.equal(first, dropout(x))
    assert not torch.equal(first, second)
    assert dropout.eval()(x) is x


# --- attention and padding -------------------------------------------------------------------


def test_attention_alone_cannot_tell_positions() -> None:
    attention, x = SelfAttention(16, 4).eval(), torch.randn(1, 5, 16)
    order = torch.tensor([3, 0, 4, 1, 2])
    straight, shuffled = (attention(rows, StepContext()) for rows in (x, x[:, order]))
    torch.testing.assert_close(straight[:, order], shuffled)


@pytest.mark.parametrize("padding", ["right", "any"])
def test_leaving_padding_out_changes_neither_outputs_nor_gradients(padding: str) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(n_layers=2, n_heads=2, d_ff=16, dropout=0.0)
    encoder, decoder = (
        TransformerEncoder(config, 8).double(),
        TransformerDecoder(config, 8).double(),
    )
    lengths = [5, 2, 4]
    real = torch.arange(5)[None, :] < torch.tensor(lengths)[:, None]
    if padding == "any":
        real = real.flip(1)
    values = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    batch = Padded(values, real, padding)
    memory = encoder(batch)
    output = decoder(batch, decoder.start(memory)).values[real]
    alone = []
    for i in range(3):
        row = Padded.unpadded(values[i : i + 1, real[i]])
        alone.append(decoder(row, decoder.start(encoder(row))).values[0])
    torch.testing.assert_close(output, torch.cat(alone))
    weights = torch.randn_like(output)
    together = torch.autograd.grad((output * weights).sum(), [values, *decoder.parameters()])
    apart = torch.autograd.grad((torch.cat(alone) * weights).sum(), [values, *decoder.parameters()])
    for ours, theirs in zip(together, apart, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("n_padding", [0, 5, 60])
def test_under_autocast_rows_come_in_few_numbers(n_padding: int) -> None:
    real = torch.ones(134, dtype=torch.bool)
    real[:n_padding] = False
    real = real.view(67, 2)
    values = torch.randn(67, 2, 3, requires_grad=True)
    weight = torch.ones(3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        unpadding = Unpadding(Padded(values, real, "any"))
    rows = unpadding.unpad(values)
    assert rows.flatten(0, -2).shape[0] == {0: 160, 5: 160, 60: 96}[n_padding]
    spread = unpadding.pad(rows * weight)
    assert torch.equal(spread[real], values[real])
    # With anything after it, at padding too: the rows that only fill up have no part in it.
    gradient, of_weight = torch.autograd.grad(spread[real].sum(), [values, weight])
    assert torch.equal(gradient, real[:, :, None].expand(values.shape).float())
    torch.testing.assert_close(of_weight, values[real].sum(0))


@given(n=st.integers(1, 2**20))
def test_numbers_of_rows_are_few_and_no_more_than_a_sixteenth_too_large(n: int) -> None:
    assert row_step(n) in {32, row_step(2 * n) // 2}
    assert -n % row_step(n) <= max(31, n // 16)
