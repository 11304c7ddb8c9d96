"""No wait for a GPU within a training step: on the meta device, a look at a value raises."""

from __future__ import annotations

import pytest
import torch
from numpy import arange

from transduce.data.batches import OneShape, PairBatch
from transduce.data.packing import PackedBatch
from transduce.models.config import PRESETS
from transduce.models.decoder_only import DecoderOnlyConfig, build_decoder_only
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded, real_places, real_values
from transduce.tasks.language_model.task import packed_loss
from transduce.tasks.translation.training import pair_loss

ROWS = [[2, 5, 6, 7, 8, 3], [2, 5, 3], [2, 9, 3]]


def pairs() -> PairBatch:
    """Rows of unequal lengths, so that there is padding."""
    source = Padded.from_rows([[5, 6, 7, 3], [5, 3], [3]])
    return PairBatch(source, Padded.from_rows(ROWS), arange(3), sum(len(row) - 1 for row in ROWS))


@pytest.mark.parametrize("preset", ["tiny", "paper-base", "convolution"])
@pytest.mark.parametrize("r_drop", [0.0, 1.0])
def test_no_value_is_read_in_a_step_of_translation(preset: str, r_drop: float) -> None:
    with torch.device("meta"):
        model = build_encoder_decoder(PRESETS[preset], 100, 100, joint=True).train()
    sums = pair_loss(model, pairs().to("meta"), 0.1, r_drop)
    (sums.total / sums.tokens).backward()  # type: ignore[no-untyped-call]
    assert sums.tokens == 9
    assert model.head.weight.grad is not None


@pytest.mark.parametrize("r_drop", [0.0, 1.0])
def test_no_value_is_read_in_a_step_of_packed_pairs(r_drop: float) -> None:
    batch = pairs().shifted().packed(OneShape([20, 20], [4, 5], 3))
    with torch.device("meta"):
        model = build_encoder_decoder(PRESETS["tiny"], 100, 100, joint=True).train()
    sums = pair_loss(model, batch.to("meta"), 0.1, r_drop)
    (sums.total / sums.tokens).backward()  # type: ignore[no-untyped-call]
    assert sums.tokens == 9
    assert model.encoder.layers[0].self_attention.query_key_value.weight.grad is not None


def test_no_value_is_read_in_a_step_of_a_language_model() -> None:
    decoder = TransformerConfig(n_layers=2, n_heads=4, d_ff=64, positions="learned")
    with torch.device("meta"):
        model = build_decoder_only(DecoderOnlyConfig(decoder=decoder), 100).train()
    rows = Padded.from_rows(ROWS)
    given = rows.with_values(rows.values[:, :-1])._replace(real=rows.real[:, 1:])
    batch = PackedBatch(given, rows.values[:, 1:], rows.real[:, 1:], arange(3), 9)
    sums = packed_loss(model, batch)
    (sums.total / sums.tokens).backward()  # type: ignore[no-untyped-call]
    assert sums.tokens == 9


def test_values_at_real_positions_are_the_same_by_places() -> None:
    rows = Padded.from_rows(ROWS)
    seen = real_values(rows.values, rows.real, 12)
    assert seen.tolist() == [token for row in ROWS for token in row]
    assert torch.equal(rows.values.flatten()[real_places(rows.real, 12)], seen)
    assert real_values(rows.values.to("meta"), rows.real.to("meta"), 12).shape == (12,)
