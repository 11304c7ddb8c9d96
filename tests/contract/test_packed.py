"""Packed batches of one shape: the losses and gradients of padded ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
from numpy import arange, array
from torch import Tensor, nn

from helpers.stacks import CLOSE
from transduce.data.batches import MULTIPLE, OneShape, PairBatch, TokenBatches
from transduce.data.packing import DocumentSpans, PackedBatch, assemble
from transduce.models.config import EncoderDecoderConfig
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig, build_decoder_only
from transduce.models.encoder_decoder import EncoderDecoder, build_encoder_decoder
from transduce.nn.stack_configs import NormOrder, PositionKind, TransformerConfig
from transduce.sequence import Padded
from transduce.tasks.language_model.task import packed_loss
from transduce.tasks.translation.training import pair_loss
from transduce.training.loss import LossSums

VOCABULARY = 24
POSITIONS = [kind for kind in get_args(PositionKind) if kind not in ("alibi", "relative")]
KINDS = list(itertools.product(POSITIONS, get_args(NormOrder)))
LENGTHS = [(4, 3), (1, 6), (7, 1), (2, 2), (5, 5)]  # tokens of source and target
SHAPE = (24, 24), (9, 7), 6  # positions, longest of each side, sentences: all have room


def stack(positions: PositionKind, order: NormOrder) -> TransformerConfig:
    return TransformerConfig(
        n_layers=2, n_heads=2, d_ff=24, positions=positions, norm_order=order, max_positions=12,
        dropout=0.0,
    )  # fmt: skip


def translator(positions: PositionKind, order: NormOrder, **more: Any) -> EncoderDecoder:
    torch.manual_seed(3)
    side = stack(positions, order)
    config = EncoderDecoderConfig(d_model=16, encoder=side, decoder=side, **more)
    return build_encoder_decoder(config, VOCABULARY, VOCABULARY, joint=True).double().train()


def pairs(lengths: list[tuple[int, int]]) -> PairBatch:
    def rows(which: int, before: list[int]) -> Padded:
        ids = [torch.randint(4, VOCABULARY, (sizes[which],)).tolist() for sizes in lengths]
        return Padded.from_rows([[*before, *row, 3] for row in ids])

    count = sum(target + 1 for _, target in lengths)
    return PairBatch(rows(0, []), rows(1, [2]), arange(len(lengths)), count)


def passed(model: nn.Module, loss: Callable[[], LossSums]) -> tuple[LossSums, list[Tensor]]:
    model.zero_grad()
    sums = loss()
    (sums.total / sums.tokens).backward()  # type: ignore[no-untyped-call]
    return sums, [p.grad for p in model.parameters() if p.grad is not None]


def assert_alike(
    model: nn.Module, padded: Callable[[], LossSums], packed: Callable[[], LossSums]
) -> None:
    (sums, gradients), (others, other_gradients) = (passed(model, x) for x in (padded, packed))
    torch.testing.assert_close(others.total, sums.total, **CLOSE)
    torch.testing.assert_close(others.nll, sums.nll, **CLOSE)
    assert others.tokens == sums.tokens
    for other, gradient in zip(other_gradients, gradients, strict=True):
        torch.testing.assert_close(other, gradient, **CLOSE)


@pytest.mark.parametrize(("positions", "order"), KINDS)
def test_translation(positions: PositionKind, order: NormOrder) -> None:
    model, batch = translator(positions, order), pairs(LENGTHS)
    packed = batch.shifted().packed(OneShape(*SHAPE))
    assert packed.source.values.shape == packed.labels.shape == (1, MULTIPLE)
    assert_alike(model, lambda: pair_loss(model, batch, 0.1), lambda: pair_loss(model, packed, 0.1))


@pytest.mark.parametrize("order", get_args(NormOrder))
def test_r_drop_and_a_bias(order: NormOrder) -> None:
    model, batch = translator("rotary", order, tie="three-way", output_bias=True), pairs(LENGTHS)
    packed = batch.shifted().packed(OneShape(*SHAPE))
    assert_alike(
        model, lambda: pair_loss(model, batch, 0.1, 5.0), lambda: pair_loss(model, packed, 0.1, 5.0)
    )


def documents(lengths: list[int], edges: list[int], skip: int = 0) -> PackedBatch:
    tokens = torch.randint(4, VOCABULARY, (sum(lengths) + len(lengths),)).numpy()
    starts = array([sum(lengths[:i]) + i for i in range(len(lengths))])
    skips = array([min(skip, length - 1) for length in lengths])
    spans = DocumentSpans(starts, array(lengths), skips, arange(len(lengths)))
    return assemble(tokens, spans, array(edges))


@pytest.mark.parametrize("edges", [[0, 2, 5], [0, 1, 2, 3, 4, 5]], ids=["shared", "apart"])
@pytest.mark.parametrize(("positions", "order"), KINDS)
def test_language_model(positions: PositionKind, order: NormOrder, edges: list[int]) -> None:
    torch.manual_seed(3)
    config = DecoderOnlyConfig(d_model=16, decoder=stack(positions, order))
    model: DecoderOnly = build_decoder_only(config, VOCABULARY).double().train()
    batch = documents([7, 3, 5, 1, 4], edges, skip=1)
    packed = batch.packed(OneShape([20], [7], 3))
    assert packed.inputs.values.shape == (1, MULTIPLE)
    assert_alike(
        model, lambda: packed_loss(model, batch, 0.1), lambda: packed_loss(model, packed, 0.1)
    )


def test_every_batch_has_the_shape_of_the_first() -> None:
    widths = array([5, 3, 8, 2, 6]), array([5, 5, 3, 8, 8])
    shape = TokenBatches(widths, lambda rows: rows, 100, 1).one_shape(has_targets=True)
    assert shape.longest == [8, 7] and shape.sequences == 5
    shape.positions = [128, 128]
    batches = [pairs(LENGTHS[:n]).shifted().packed(shape) for n in (1, 3, 5, 2)]
    for batch in batches:
        for side in (batch.source, batch.inputs):
            assert side.values.shape == side.real.shape == (1, 128)
            assert side.borders is not None
            assert side.borders.starts.shape == batches[0].source.borders.starts.shape
            assert side.borders.starts[-1] == 128
            lengths = side.borders.starts.diff()
            assert lengths.min() >= 0 and lengths.max() <= side.borders.longest
        assert int(batch.inputs.real.sum()) == batch.target_tokens


def test_the_shape_grows_where_a_batch_does_not_fit() -> None:
    shape = OneShape([10, 10], [3, 3], 1)
    first, large, again = (
        pairs(lengths).shifted().packed(shape) for lengths in (LENGTHS[:1], LENGTHS * 4, LENGTHS)
    )
    assert first.source.values.shape == (1, 64)
    assert large.source.values.shape == again.source.values.shape == (1, 128)
    assert large.source.borders is not None and again.source.borders is not None
    assert large.source.borders.starts.shape == again.source.borders.starts.shape
    assert large.source.borders.longest == again.source.borders.longest == 8


def test_halves_packed_add_up() -> None:
    model, batch = translator("learned", "pre"), pairs(LENGTHS)
    halves = batch.halves()
    assert halves is not None
    shape = OneShape(*SHAPE)
    sums = [pair_loss(model, half.shifted().packed(shape), 0.1) for half in halves]
    whole = pair_loss(model, batch, 0.1)
    torch.testing.assert_close(sums[0].total + sums[1].total, whole.total, **CLOSE)
