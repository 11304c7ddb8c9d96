"""Products of 8 bits and in bfloat16 are close to those of float32, row by row."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import transduce
from helpers.tiny_run import reversal_pairs, tiny_settings, write_tsv
from transduce.errors import SettingError
from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.nn.kernels import bf16
from transduce.nn.kernels.bf16 import Bf16Linear, to_bf16
from transduce.nn.kernels.int8 import ENGINE, Int8Linear, to_int8

Linear = type[Int8Linear] | type[Bf16Linear]
int8 = pytest.mark.skipif(
    ENGINE not in torch.backends.quantized.supported_engines, reason="not for this processor"
)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("make", "most"), [pytest.param(Int8Linear, 0.02, marks=int8), (Bf16Linear, 0.01)]
)
def test_close_to_float32(make: Linear, most: float, bias: bool) -> None:
    torch.manual_seed(1)
    linear = nn.Linear(96, 40, bias=bias)
    x = torch.randn(2, 7, 96) * torch.logspace(-3, 3, 7)[:, None]  # rows of unlike size
    with torch.inference_mode():
        right = linear(x)
        found = make(linear.weight, linear.bias)(x)
    assert found.dtype == torch.float32
    error = (found - right).norm(dim=-1) / right.norm(dim=-1)
    assert 0 < error.max() < most


@int8
def test_a_row_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(1)
    linear = nn.Linear(96, 40)
    product = Int8Linear(linear.weight, linear.bias)
    x = torch.randn(5, 96) * torch.logspace(-2, 2, 5)[:, None]
    with torch.inference_mode():
        together = product(x)
        for i in range(5):
            assert torch.equal(product(x[i : i + 1])[0], together[i])


@int8
def test_zeros_give_the_bias() -> None:
    linear = nn.Linear(8, 4)
    with torch.inference_mode():
        found = Int8Linear(linear.weight, linear.bias)(torch.zeros(1, 8))
    assert torch.equal(found[0], linear.bias)


@pytest.mark.parametrize(
    ("turn", "made"), [pytest.param(to_int8, Int8Linear, marks=int8), (to_bf16, Bf16Linear)]
)
def test_every_matrix_is_turned_and_a_tied_embedding_is_not(
    turn: Callable[[nn.Module], None], made: Linear
) -> None:
    model = nn.Sequential(nn.Embedding(9, 8), nn.Sequential(nn.Linear(8, 8)), VocabularyHead(8, 9))
    model[2].weight = model[0].weight
    turn(model)
    assert isinstance(model[1][0], made)
    assert isinstance(model[2], made)
    assert model[2].weight is model[0].weight  # which a shortlist picks rows of
    assert model[0].weight.dtype == torch.float32


@int8
def test_a_run_loads_in_int8(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(60))
    run, _ = transduce.train(tiny_settings(data), tmp_path / "run")
    model = transduce.load(run, "cpu", precision="int8")
    texts = ["abcde", "ab", "edc"]
    together = [t.text for t in model.translate(texts)]
    assert together == [model.translate(text).text for text in texts]


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
    with pytest.raises(SettingError, match="not bf16"):
        transduce.load(run, "cpu", precision="bf16", engine="ctranslate2")


def test_slow_bf16_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    times = {torch.float32: 1.0, torch.bfloat16: 9.0}
    monkeypatch.setattr(bf16, "_seconds", times.__getitem__)
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(60))

    def warnings_of(name: str) -> list[str]:
        """Of a training and a load in bf16."""
        settings = tiny_settings(data, "training.precision=bf16")
        run, _ = transduce.train(settings, tmp_path / name)
        said = capsys.readouterr().err.splitlines()
        caplog.clear()
        transduce.load(run, "cpu", precision="bf16")
        said += [record.getMessage() for record in caplog.records]
        return [line for line in said if "bf16" in line]

    slow = warnings_of("slow")
    assert len(slow) == 2 and slow[0] == slow[1]
    assert slow[0].startswith("bf16: a matrix product takes 9 times as long in bfloat16")
    assert bf16.relative_slowdown(torch.device("cuda")) == ""
    times[torch.bfloat16] = 0.3
    assert warnings_of("fast") == []


def test_fast_bf16_is_told_where_a_training_is_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = {torch.float32: 1.0, torch.bfloat16: 0.4}
    monkeypatch.setattr(bf16, "_seconds", times.__getitem__)
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(60))

    def hints(name: str) -> list[str]:
        transduce.train(tiny_settings(data), tmp_path / name)
        return [line for line in capsys.readouterr().err.splitlines() if "bf16" in line]

    assert hints("fast") == [
        "this processor multiplies matrices 2.5 times as fast in bfloat16 as in float32: "
        'training.precision = "bf16" may save time'
    ]
    assert bf16.slow_bf16_hint(torch.device("cuda")) == ""
    times[torch.bfloat16] = 0.9
    assert hints("hardly faster") == []


@int8
def test_other_devices_are_told() -> None:
    with pytest.raises(SettingError, match="device = 'cpu'"):
        to_int8(nn.Linear(2, 2, device="meta"))
