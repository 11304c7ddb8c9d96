"""Attention and positions against known figures, PyTorch's own, and formulas written anew here."""

import math

import pytest
import torch
from torch import Tensor, nn

from helpers.golden import exact, read_golden
from transduce.errors import SettingError
from transduce.nn import attention as bf16_attention
from transduce.nn import positions
from transduce.nn.attention import (
    CrossAttention,
    SelfAttention,
    StepContext,
    attention,
    attention_with_weights,
)
from transduce.nn.masks import Mask, causal, causal_mask, key_mask
from transduce.nn.positions import AlibiPositions, RotaryPositions, SinusoidalPositions, rotate
from transduce.sequence import Padded

SHAPES = [(2, 5, 7, 16, 4), (1, 1, 3, 12, 3), (3, 9, 4, 24, 2), (2, 6, 6, 8, 1)]  # b, t, s, m, h
CLOSE = {"rtol": 0.0, "atol": 1e-12}


@pytest.mark.parametrize("case", ["unscaled", "scaled", "scaled_causal"])
def test_worked_example(case: str) -> None:
    golden = read_golden("attention_worked_example")
    x = exact(golden["X"])
    # Equation (1) always divides by √d; a query √d times as long undoes it.
    query = x * math.sqrt(2) if case == "unscaled" else x
    mask = Mask(causal=True) if case == "scaled_causal" else Mask()

    output, weights = attention_with_weights(query, x, x, mask)
    fused = attention(query[None, None], x[None, None], x[None, None], mask)[0, 0]

    expected = golden[case]
    torch.testing.assert_close(weights, exact(expected["weights"]), rtol=0, atol=1e-9)
    torch.testing.assert_close(output, exact(expected["output"]), rtol=0, atol=1e-9)
    torch.testing.assert_close(fused, exact(expected["output"]), rtol=0, atol=1e-9)


def masks(t: int, s: int) -> dict[str, Mask]:
    some = torch.rand(2, 1, t, s) < 0.6
    some[..., 0] = True
    bias = torch.randn(3, t, s, dtype=torch.float64)
    return {
        "nothing hidden": Mask(),
        "causal": Mask(causal=True),
        "causal block": Mask(allowed=causal(t, s, torch.device("cpu"))),
        "allowed": Mask(allowed=some),
        "bias": Mask(bias=bias),
        "bias and allowed": Mask(allowed=some, bias=bias),
        "nothing allowed in a row": Mask(allowed=some & torch.arange(t).gt(0)[:, None]),
    }


@pytest.mark.parametrize("name", list(masks(2, 2)))
def test_fused_and_spelled_out_attention_agree(name: str) -> None:
    t, s = (6, 6) if name == "causal" else (4, 6)
    mask = masks(t, s)[name]
    query = torch.randn(2, 3, t, 8, dtype=torch.float64)
    key, value = torch.randn(2, 2, 3, s, 8, dtype=torch.float64)
    output, weights = attention_with_weights(query, key, value, mask)
    torch.testing.assert_close(attention(query, key, value, mask), output, **CLOSE)
    torch.testing.assert_close(weights @ value, output, **CLOSE)
    if mask.allowed is not None:
        assert not weights.masked_select(~mask.allowed).any()


@pytest.mark.parametrize("name", list(masks(2, 2)))
def test_bfloat16_is_rounded_before_and_after_alone_where_keys_are_many(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bf16_attention, "MAX_KEYS", 5)
    t, s = (6, 6) if name == "causal" else (4, 6)
    mask = masks(t, s)[name].in_float32()
    query = torch.randn(2, 3, t, 8).bfloat16().requires_grad_()
    key, value = torch.randn(2, 2, 3, s, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        narrow = attention(query, key, value, mask)
    wide = attention(query.float(), key.float(), value.float(), mask)
    assert torch.equal(narrow, wide.bfloat16())
    (gradient,) = torch.autograd.grad(narrow.sum(), query)
    assert gradient.isfinite().all() and gradient.dtype == torch.bfloat16


def torch_attention(self_or_cross: nn.Module, m: int) -> nn.MultiheadAttention:
    """PyTorch's multi-head attention with the weights of ours."""
    theirs = nn.MultiheadAttention(m, self_or_cross.n_heads, batch_first=True).double().eval()
    if isinstance(self_or_cross, SelfAttention):
        weight, bias = self_or_cross.query_key_value.weight, self_or_cross.query_key_value.bias
    else:
        query, key_value = self_or_cross.query, self_or_cross.key_value
        weight = torch.cat([query.weight, key_value.weight])
        bias = torch.cat([query.bias, key_value.bias])
    with torch.no_grad():
        theirs.in_proj_weight.copy_(weight)
        theirs.in_proj_bias.copy_(bias)
        theirs.out_proj.load_state_dict(self_or_cross.output.state_dict())
    return theirs


def ragged(b: int, s: int, m: int) -> Padded:
    lengths = torch.randint(1, s + 1, (b,))
    real = torch.arange(s) < lengths[:, None]
    return Padded(torch.randn(b, s, m, dtype=torch.float64), real, "right")


@pytest.mark.parametrize(("b", "t", "s", "m", "h"), SHAPES)
def test_cross_attention_agrees_with_pytorch(b: int, t: int, s: int, m: int, h: int) -> None:
    ours = CrossAttention(m, h).double().eval()
    x, memory = torch.randn(b, t, m, dtype=torch.float64), ragged(b, s, m)
    ours.weights = []
    context = StepContext(memory_mask=key_mask(memory))
    output = ours(x, context, ours.project(memory.values))
    expected, weights = torch_attention(ours, m)(
        x, memory.values, memory.values, key_padding_mask=~memory.real, average_attn_weights=False
    )
    torch.testing.assert_close(output, expected, **CLOSE)
    torch.testing.assert_close(ours.weights[0], weights, **CLOSE)


@pytest.mark.parametrize(("b", "t", "s", "m", "h"), SHAPES)
def test_causal_self_attention_agrees_with_pytorch(b: int, t: int, s: int, m: int, h: int) -> None:
    ours = SelfAttention(m, h).double().eval()
    x = torch.randn(b, t, m, dtype=torch.float64)
    real = torch.ones(b, t, dtype=torch.bool)
    output = ours(x, StepContext(causal_mask(real, "none", t)))
    hidden = ~causal(t, t, x.device)
    expected, _ = torch_attention(ours, m)(x, x, x, attn_mask=hidden)
    torch.testing.assert_close(output, expected, **CLOSE)


@pytest.mark.parametrize(("m", "h", "d"), [(7, 3, 2), (8, 2, 16), (3, 2, 5)])
def test_heads_of_any_width_agree_with_the_equation(m: int, h: int, d: int) -> None:
    ours = CrossAttention(m, h, d_head=d).double().eval()
    x, memory = torch.randn(2, 4, m, dtype=torch.float64), torch.randn(2, 5, m, dtype=torch.float64)
    whole = Padded(memory, torch.ones(2, 5, dtype=torch.bool), "none")
    output = ours(x, StepContext(memory_mask=key_mask(whole)), ours.project(memory))
    w_q, (w_k, w_v) = ours.query.weight.T, ours.key_value.weight.T.chunk(2, 1)
    b_q, (b_k, b_v) = ours.query.bias, ours.key_value.bias.chunk(2)
    heads = []
    for i in range(h):
        part = slice(i * d, (i + 1) * d)
        q = x @ w_q[:, part] + b_q[part]
        k, v = memory @ w_k[:, part] + b_k[part], memory @ w_v[:, part] + b_v[part]
        heads.append(torch.softmax(q @ k.mT / math.sqrt(d), -1) @ v)
    expected = torch.cat(heads, -1) @ ours.output.weight.T + ours.output.bias
    torch.testing.assert_close(output, expected, **CLOSE)
    own = SelfAttention(m, h, d_head=d)
    assert own.query_key_value.weight.shape == (3 * h * d, m) and own.output.in_features == h * d


def test_heads_that_do_not_fit_are_a_setting() -> None:
    for kind in (SelfAttention, CrossAttention):
        with pytest.raises(SettingError, match=r"= 2 does not divide d_model = 3; .*d_head"):
            kind(3, 2)
        for sizes in ((4, 0), (4, -1), (-4, 2), (0, 1)):
            with pytest.raises(SettingError, match="at least 1, not d_model = "):
                kind(*sizes)
        with pytest.raises(SettingError, match="d_head = 0"):
            kind(4, 2, d_head=0)
        assert kind(8, 2).output.weight.shape == (8, 8)


def sinusoids(length: int, width: int) -> Tensor:
    zeros = torch.zeros(1, length, width, dtype=torch.float64)
    return SinusoidalPositions().embed(zeros, torch.arange(length))[0]


def test_sinusoids_are_the_known_ones() -> None:
    golden = read_golden("positional_encoding")
    close = {"rtol": 0.0, "atol": 1e-9}
    eight = exact(golden["d8_positions_0_to_7"])
    torch.testing.assert_close(sinusoids(8, 8), eight, **close)
    six = exact(golden["d6_odd_check"])
    torch.testing.assert_close(sinusoids(len(six), 6), six, **close)
    table = sinusoids(5000, 512)
    for row in (0, 1, 4999):
        torch.testing.assert_close(table[row], exact(golden[f"d512_row_{row}"]), **close)


def test_sinusoids_are_added_at_each_rows_own_positions() -> None:
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    at = torch.tensor([[0, 0, 1], [4, 5, 6]])
    torch.testing.assert_close(SinusoidalPositions().embed(x, at), x + sinusoids(7, 8)[at])


def test_sinusoids_at_an_odd_width_end_with_a_sine() -> None:
    torch.testing.assert_close(sinusoids(9, 7), sinusoids_by_formula(9, 7), **CLOSE)


def test_a_table_of_sinusoids_is_not_freed() -> None:
    """A CUDA graph reads the table by its address as often as it is replayed."""
    settings = "sinusoidal", torch.float32, torch.device("cpu")
    table = positions._sinusoids(64, 8, *settings)
    for width in range(10, 50, 2):
        positions._sinusoids(64, width, *settings)
    assert positions._sinusoids(64, 8, *settings) is table


def sinusoids_by_formula(length: int, width: int) -> Tensor:
    rows = [
        [
            (math.sin if j % 2 == 0 else math.cos)(position / 10000 ** ((j - j % 2) / width))
            for j in range(width)
        ]
        for position in range(length)
    ]
    return exact(rows)


def rotated(x: Tensor, at: Tensor) -> Tensor:
    return rotate(x, RotaryPositions(x.shape[-1]).angles(at, x.dtype))


def rotated_by_formula(x: Tensor, at: Tensor) -> Tensor:
    """RoPE with complex numbers: dimensions i and i + d/2 are one number that turns."""
    half = x.shape[-1] // 2
    numbers = torch.complex(x[..., :half], x[..., half:])
    theta = exact([10000 ** (-2 * i / x.shape[-1]) for i in range(half)])
    turned = numbers * torch.exp(1j * at[..., None] * theta)
    return torch.cat([turned.real, turned.imag], -1)


@pytest.mark.parametrize(("t", "d"), [(1, 2), (5, 4), (300, 10)])
def test_rotary_positions_agree_with_the_complex_formula(t: int, d: int) -> None:
    x, at = torch.randn(2, 3, t, d, dtype=torch.float64), torch.arange(t)
    expected = rotated_by_formula(x, at)
    torch.testing.assert_close(rotated(x, at), expected, **CLOSE)
    by_row = torch.stack([at, at + 3])
    expected = rotated_by_formula(x, by_row[:, None])
    torch.testing.assert_close(rotated(x, by_row), expected, **CLOSE)


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    query, key = torch.randn(2, 1, 1, 6, 8, dtype=torch.float64)
    at = torch.arange(6)
    near = rotated(query, at) @ rotated(key, at).mT
    far = rotated(query, at + 1000) @ rotated(key, at + 1000).mT
    torch.testing.assert_close(near, far, rtol=0, atol=1e-10)


def test_rotary_angles_keep_their_precision_in_bfloat16() -> None:
    x, at = torch.randn(1, 1, 2000, 16).bfloat16(), torch.arange(2000)
    expected = rotated(x.double(), at)
    torch.testing.assert_close(rotated(x, at).double(), expected, rtol=0, atol=0.05)


def test_gradients_turn_back() -> None:
    x, at = torch.randn(2, 3, 5, 4, dtype=torch.float64, requires_grad=True), torch.arange(5)
    assert torch.autograd.gradcheck(lambda x: rotated(x, at), x)
    assert torch.autograd.gradgradcheck(lambda x: rotated(x, at), x)


@pytest.mark.parametrize("h", [1, 4, 6, 8])
def test_alibi_agrees_with_a_loop(h: int) -> None:
    queries, keys = torch.arange(3, 6), torch.arange(6)
    bias = AlibiPositions(h).bias(queries, keys)
    assert bias is not None
    for head in range(h):
        for i, query in enumerate(queries.tolist()):
            for j, key in enumerate(keys.tolist()):
                expected = -abs(query - key) / 2 ** (8 * (head + 1) / h)
                assert bias[head, i, j].item() == pytest.approx(expected, abs=1e-6)


def test_alibi_slopes_of_eight_heads_are_the_papers() -> None:
    bias = AlibiPositions(8).bias(torch.tensor([1]), torch.tensor([0]))
    assert bias is not None
    assert bias.flatten().tolist() == [-(2.0**-i) for i in range(1, 9)]
