"""Learning through attention in bfloat16 on a CPU: the same but for rounding, gradients too."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from transduce.nn import attention as bf16_attention
from transduce.nn.attention import attention, attention_with_weights
from transduce.nn.masks import Mask

B, H, D = 3, 2, 8


def parts(t: int, s: int) -> list[Tensor]:
    """Queries, keys and values as a projection leaves them: heads in the middle of each row."""
    made = [torch.randn(B, n, H, D).bfloat16().requires_grad_() for n in (t, s, s)]
    return [part.transpose(1, 2) for part in made]


def padded(s: int) -> Tensor:
    real = torch.arange(s) < torch.tensor([s, s - 2, 1])[:, None]
    return real[:, None, None, :]


def with_gradients(mixed: Tensor, leaves: list[Tensor], along: Tensor) -> list[Tensor]:
    return [mixed, *torch.autograd.grad(mixed, leaves, along.to(mixed.dtype))]


@pytest.mark.parametrize("t, s", [(5, 5), (1, 6), (7, 4)])
@pytest.mark.parametrize("kind", ["nothing hidden", "padding", "the future", "nothing to see"])
def test_as_spelled_out_in_float64(t: int, s: int, kind: str) -> None:
    torch.manual_seed(1)
    nothing = padded(s) & (torch.arange(B) != 1)[:, None, None, None]
    masks = {"nothing hidden": Mask(), "padding": Mask(allowed=padded(s))}
    masks |= {"the future": Mask(causal=True), "nothing to see": Mask(allowed=nothing)}
    narrow, along = parts(t, s), torch.randn(B, H, t, D)
    wide = [part.detach().double().requires_grad_() for part in narrow]
    expected, _ = attention_with_weights(*wide, masks[kind])
    result = attention(*narrow, masks[kind])
    assert result.dtype == torch.bfloat16
    both = with_gradients(result, narrow, along), with_gradients(expected, wide, along)
    for one, other in zip(*both, strict=True):
        assert (one.double() - other).norm() < 0.01 * other.norm()  # bfloat16 has 8 bits


def test_what_is_hidden_does_not_matter_at_all() -> None:
    torch.manual_seed(2)
    query, key, value = parts(4, 6)
    real = padded(6)
    result = attention(query, key, value, Mask(allowed=real))
    hidden = ~real.transpose(-2, -1)
    other = [part.detach().masked_fill(hidden, 99.0).requires_grad_() for part in (key, value)]
    again = attention(query, *other, Mask(allowed=real))
    assert torch.equal(result, again)
    for gradient in torch.autograd.grad(again.sum(), other):
        assert not gradient.masked_select(hidden).any()


def test_many_keys_are_left_to_the_kernel_that_keeps_no_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.manual_seed(3)
    made = parts(5, 9)
    along = torch.randn(B, H, 5, D)
    here = with_gradients(attention(*made), made, along)
    monkeypatch.setattr(bf16_attention, "MAX_KEYS", 8)
    monkeypatch.setattr(bf16_attention, "bf16_attention", None)  # would fail if it were called
    for one, other in zip(here, with_gradients(attention(*made), made, along), strict=True):
        torch.testing.assert_close(one, other, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("mask", [Mask(bias=torch.randn(1, H, 5, 5)), Mask()])
def test_biases_and_dropout_are_not_lost(mask: Mask) -> None:
    torch.manual_seed(4)
    made = parts(5, 5)
    dropout = 0.0 if mask.bias is not None else 1.0
    result = attention(*made, mask, dropout)
    if dropout:
        assert not result.any()
    else:
        expected, _ = attention_with_weights(*(part.double() for part in made), mask)
        torch.testing.assert_close(result.double(), expected, atol=0.03, rtol=0.02)
