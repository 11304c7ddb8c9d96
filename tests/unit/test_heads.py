"""Heads: what padding holds never counts, and every real position that should count does."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch

from transduce.nn.heads.label import LabelHead, SpanHead, pool
from transduce.nn.stack_configs import Pooling
from transduce.sequence import Padded

M = 6
LENGTHS = (3, 5, 1)
POOLINGS = get_args(Pooling)


def padded(side: str, garbage: float = 0.0) -> Padded:
    """Three rows of the same random vectors, whatever the side and content of the padding."""
    generator = torch.Generator().manual_seed(3)
    width = max(LENGTHS) + (side != "none")
    values = torch.full((len(LENGTHS), width, M), garbage)
    real = torch.zeros(len(LENGTHS), width, dtype=torch.bool)
    for row, length in enumerate(LENGTHS):
        begin = width - length if side == "left" else 0
        values[row, begin : begin + length] = torch.randn(length, M, generator=generator)
        real[row, begin : begin + length] = True
    return Padded(values, real, "any" if side == "left" else "right")


def by_hand(x: Padded, how: Pooling) -> torch.Tensor:
    """Row by row, without padding."""
    rows = [values[real] for values, real in zip(x.values, x.real, strict=True)]
    if how == "first":
        return torch.stack([row[0] for row in rows])
    if how == "mean":
        return torch.stack([row.mean(0) for row in rows])
    return torch.stack([row.max(0).values for row in rows])


class TestPool:
    @pytest.mark.parametrize("how", POOLINGS)
    @pytest.mark.parametrize("side", ["right", "left"])
    @pytest.mark.parametrize("garbage", [0.0, 1e9, -1e9, math.inf, math.nan])
    def test_padding_does_not_count(self, how: Pooling, side: str, garbage: float) -> None:
        x = padded(side, garbage)
        torch.testing.assert_close(pool(x, how), by_hand(x, how))

    @pytest.mark.parametrize("how", POOLINGS)
    def test_left_and_right_agree(self, how: Pooling) -> None:
        torch.testing.assert_close(pool(padded("left"), how), pool(padded("right"), how))

    def test_the_maximum_of_negative_values_is_not_that_of_padding(self) -> None:
        x = Padded(torch.tensor([[[-3.0], [-2.0], [0.0]]]), torch.tensor([[True, True, False]]))
        assert pool(x, "max").item() == -2

    @pytest.mark.parametrize("how", POOLINGS)
    def test_gradients_reach_what_counts_and_nothing_else(self, how: Pooling) -> None:
        x = padded("left")
        values = x.values.requires_grad_()
        pool(x.with_values(values), how).sum().backward()
        assert values.grad is not None
        assert not values.grad[~x.real].any()
        totals = values.grad.sum(1)
        torch.testing.assert_close(totals, torch.ones_like(totals))
        if how == "mean":
            assert values.grad[x.real].all()

    def test_in_bfloat16(self) -> None:
        x = padded("right")
        x = x.with_values(x.values.bfloat16())
        for how in POOLINGS:
            assert pool(x, how).dtype == torch.bfloat16
            torch.testing.assert_close(pool(x, how), by_hand(x, how))


class TestLabelHead:
    @pytest.mark.parametrize("how", POOLINGS)
    @pytest.mark.parametrize("hidden", [False, True])
    def test_scores(self, how: Pooling, hidden: bool) -> None:
        head, x = LabelHead(M, 4, how, hidden, 0.0), padded("left", math.nan)
        vector = by_hand(x, how)
        if hidden:
            assert head.hidden is not None
            vector = (vector @ head.hidden.weight.T + head.hidden.bias).tanh()
        torch.testing.assert_close(head(x), vector @ head.output.weight.T + head.output.bias)

    def test_every_parameter_learns(self) -> None:
        head = LabelHead(M, 4, "mean", True, 0.0)
        head(padded("right")).logsumexp(1).sum().backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in head.parameters())

    def test_dropout_is_for_training_alone(self) -> None:
        head, x = LabelHead(M, 4, "first", False, 0.9), padded("right")
        assert not torch.equal(head(x), head(x))
        head.eval()
        assert torch.equal(head(x), head(x))


class TestSpanHead:
    @pytest.mark.parametrize("side", ["right", "left"])
    def test_padding_begins_and_ends_nothing(self, side: str) -> None:
        head, x = SpanHead(M), padded(side, 1e6)
        scores = head(x)
        assert scores.shape == (*x.real.shape, 2)
        assert bool((scores.softmax(1)[~x.real] == 0).all())
        torch.testing.assert_close(scores[x.real], head.output(x.values[x.real]))
