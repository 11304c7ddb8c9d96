"""Matrices that lie otherwise in memory say the same."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

import transduce
from helpers.random_translator import random_translator
from transduce.nn.kernels import lay_out_for_few_rows
from transduce.sequence import Padded

RUN = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"


@pytest.mark.parametrize("tie", ["none", "two-way", "three-way"])
def test_the_same_values_in_another_order(tie: str) -> None:
    model = random_translator(tie=tie).model
    other = copy.deepcopy(model)
    lay_out_for_few_rows(other)
    other.load_state_dict(model.state_dict())
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two), name
    assert other.head.weight.stride() == (1, other.head.weight.shape[0])
    assert (other.head.weight is other.target_front_end.embedding.weight) == (tie != "none")
    source, target = (Padded.unpadded(torch.randint(4, 40, (3, 5))) for _ in range(2))
    with torch.inference_mode():
        torch.testing.assert_close(other(source, target), model(source, target))


def test_wide_matrices_stay() -> None:
    model = random_translator(decoder={"d_ff": 64}).model
    lay_out_for_few_rows(model)
    layer = model.decoder.layers[0].feed_forward
    shapes = {p.shape: p.stride() for p in layer.parameters() if p.dim() == 2}
    assert shapes[torch.Size([16, 64])] == (64, 1)
    assert shapes[torch.Size([64, 16])] == (1, 64)


def test_a_loaded_run_answers_with_them() -> None:
    run = transduce.load(RUN, "cpu")
    assert run.model.head.weight.stride(0) == 1
