"""Products in bfloat16 are close to those of float32, and the rest of a model stays as it was."""

from pathlib import Path

import pytest
import torch
from torch import nn

import transduce
from helpers.tiny_run import reversal_pairs, tiny_settings, write_tsv
from transduce.errors import SettingError
from transduce.nn.bf16 import Bf16Linear, to_bf16
from transduce.nn.heads.vocabulary import VocabularyHead


@pytest.mark.parametrize("bias", [True, False])
def test_close_to_float32(bias: bool) -> None:
    torch.manual_seed(1)
    linear = nn.Linear(96, 40, bias=bias)
    x = torch.randn(2, 7, 96) * torch.logspace(-3, 3, 7)[:, None]  # rows of unlike size
    with torch.inference_mode():
        right = linear(x)
        found = Bf16Linear(linear.weight, linear.bias)(x)
    assert found.dtype == torch.float32
    error = (found - right).norm(dim=-1) / right.norm(dim=-1)
    assert 0 < error.max() < 0.01


def test_every_matrix_is_turned_and_a_tied_embedding_is_not() -> None:
    model = nn.Sequential(nn.Embedding(9, 8), nn.Sequential(nn.Linear(8, 8)), VocabularyHead(8, 9))
    model[2].weight = model[0].weight
    to_bf16(model)
    assert isinstance(model[1][0], Bf16Linear)
    assert isinstance(model[2], Bf16Linear)
    assert model[2].weight is model[0].weight  # which a shortlist picks rows of
    assert model[0].weight.dtype == torch.float32


def test_a_run_loads_in_bf16(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(60))
    run, _ = transduce.train(tiny_settings(data), tmp_path / "run")
    narrow = transduce.load(run, "cpu", precision="bf16")
    texts = ["abcde", "ab", "edc"]
    right = transduce.load(run, "cpu").translate_batch(texts)
    for found, exact in zip(narrow.translate_batch(texts), right, strict=True):
        assert found.log_prob != exact.log_prob
        if found.text == exact.text:  # after twelve steps, two outputs may be nearly as likely
            assert found.log_prob == pytest.approx(exact.log_prob, rel=0.02)
    with pytest.raises(SettingError, match="not in bf16"):
        transduce.load(run, "cpu", precision="bf16", engine="ctranslate2")
