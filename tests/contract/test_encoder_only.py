"""What every model of an encoder under a head promises, whatever the encoder is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from transduce.models.config import EncoderOnlyConfig
from transduce.models.encoder_only import EncoderOnly, build_text_encoder
from transduce.nn.heads.label import LabelHead, SpanHead
from transduce.sequence import Padded
from transduce.settings.sections import parse

M, VOCABULARY = 16, 13
TRANSFORMER = {"n_layers": 2, "n_heads": 2, "d_ff": 24, "dropout": 0.0}
BERT = {**TRANSFORMER, "positions": "learned", "max_positions": 32, "norm_order": "post"}

# Settings of models; a new kind of encoder joins with one line.
MODELS: dict[str, dict[str, Any]] = {
    "bert": {"encoder": BERT, "pooling": "first", "pooler": True, "segments": True},
    "rotary": {"encoder": {**TRANSFORMER, "positions": "rotary"}, "pooling": "mean"},
    "alibi": {"encoder": {**TRANSFORMER, "positions": "alibi"}, "pooling": "max"},
    "text-cnn": {
        "encoder": {"kind": "text-cnn", "widths": [2, 3], "dropout": 0.0},
        "pooling": "max",
    },
    "convolution": {
        "encoder": {"kind": "convolution", "n_layers": 2, "dropout": 0.0},
        "pooling": "mean",
    },
    "memory-network": {
        "encoder": {"kind": "memory-network", "hops": 2, "window": 3, "dropout": 0.0},
        "pooling": "first",
    },
    "recurrent": {"encoder": {"kind": "recurrent", "n_layers": 1, "dropout": 0.0}},
}
HEADS = {
    "labels": lambda config: LabelHead(M, 5, config.pooling, config.pooler, 0.0),
    "spans": lambda config: SpanHead(M),
}
LENGTHS = (4, 7, 1)


def build(name: str, head: str = "labels") -> EncoderOnly:
    torch.manual_seed(1)
    config = parse(EncoderOnlyConfig, {"d_model": M, **MODELS[name]}, "model")
    return build_text_encoder(config, VOCABULARY, HEADS[head](config)).double().eval()


def ids(lengths: Sequence[int] = LENGTHS) -> list[list[int]]:
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(4, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]


def laid_out(rows: list[list[int]], left: int, right: int) -> Padded:
    """Padding that is not even the padding's id, and more of it than there has to be."""
    width = left + max(map(len, rows)) + right
    values = torch.full((len(rows), width), 7)
    real = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        begin = width - right - len(row) if left else 0
        values[i, begin : begin + len(row)] = torch.tensor(row)
        real[i, begin : begin + len(row)] = True
    return Padded(values, real, "any" if left else "right")


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("left", "right"), [(0, 0), (0, 3), (4, 0), (2, 2)])
def test_padding_changes_nothing(name: str, head: str, left: int, right: int) -> None:
    model, rows = build(name, head), ids()
    batch = laid_out(rows, left, right)
    result = model(batch)
    for i, row in enumerate(rows):
        alone = model(Padded.unpadded(torch.tensor([row])))[0]
        ours = result[i] if head == "labels" else result[i][batch.real[i]]
        torch.testing.assert_close(ours, alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_the_other_rows_change_nothing(name: str) -> None:
    model, rows = build(name), ids()
    result = model(laid_out(rows, 0, 0))
    order = [2, 0, 1]
    turned = model(laid_out([rows[i] for i in order], 0, 0))
    torch.testing.assert_close(turned, result[order], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_every_token_matters(name: str) -> None:
    model = build(name)
    (row,) = ids([6])
    before = model(Padded.unpadded(torch.tensor([row])))
    for at in range(len(row)):
        changed = [*row]
        changed[at] = 4 if row[at] != 4 else 5
        assert not torch.allclose(model(Padded.unpadded(torch.tensor([changed]))), before)


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_learns(name: str) -> None:
    model = build(name)
    model(laid_out(ids(), 0, 0)).logsumexp(1).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
