"""Products in bfloat16 and in 8 bits are close to those of float32, row by row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import transduce
from helpers.native import INSTRUCTIONS, needs_native
from helpers.tiny_run import tiny_settings
from transduce.engine.build import COMPILERS, VARIABLE
from transduce.engine.model import NativeLinear, to_native
from transduce.errors import RunError, SettingError
from transduce.nn import kernels
from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.nn.kernels import Bf16Linear, to_bf16
from transduce.nn.precision import Precision

Make = Callable[[Tensor, Tensor | None], nn.Module]


def native(precision: Precision) -> Make:
    return lambda weight, bias: NativeLinear(weight, bias, precision)


KINDS: list[Any] = [
    pytest.param(native("int8"), 0.02, marks=needs_native, id="int8"),
    pytest.param(native("bf16"), 0.01, marks=needs_native, id="bf16"),
    pytest.param(Bf16Linear, 0.01, id="bf16-gpu"),
]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("make", "most"), KINDS)
def test_close_to_float32(make: Make, most: float, bias: bool) -> None:
    torch.manual_seed(1)
    linear = nn.Linear(96, 41, bias=bias)
    x = torch.randn(2, 7, 96) * torch.logspace(-3, 3, 7)[:, None]  # rows of unlike size
    with torch.inference_mode():
        right = linear(x)
        result = make(linear.weight, linear.bias)(x)
    assert result.dtype == torch.float32 and result.shape == right.shape
    error = (result - right).norm(dim=-1) / right.norm(dim=-1)
    assert 0 < error.max() < most


@needs_native
@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_a_row_depends_neither_on_its_neighbours_nor_on_threads(precision: Precision) -> None:
    torch.manual_seed(1)
    linear = nn.Linear(96, 40)
    product = NativeLinear(linear.weight, linear.bias, precision)
    x = torch.randn(200, 96) * torch.logspace(-2, 2, 200)[:, None]
    before = torch.get_num_threads()
    with torch.inference_mode():
        together = product(x)
        for i in range(0, 200, 7):
            assert torch.equal(product(x[i : i + 1])[0], together[i])
        torch.set_num_threads(3)
        try:
            assert torch.equal(product(x), together)
        finally:
            torch.set_num_threads(before)


@needs_native
def test_zeros_give_the_bias_and_nothing_gives_nothing() -> None:
    linear = nn.Linear(8, 4)
    product = NativeLinear(linear.weight, linear.bias, "int8")
    with torch.inference_mode():
        assert torch.equal(product(torch.zeros(1, 8))[0], linear.bias)
        assert product(torch.zeros(2, 0, 8)).shape == (2, 0, 4)


@needs_native
def test_a_damaged_matrix_is_refused() -> None:
    with pytest.raises(RunError, match="a matrix of the model is not finite"):
        NativeLinear(torch.full((2, 2), torch.inf), None, "int8")


@pytest.mark.parametrize(
    ("turn", "made"),
    [
        pytest.param(lambda model: to_native(model, "int8"), NativeLinear, marks=needs_native),
        (to_bf16, Bf16Linear),
    ],
)
def test_every_matrix_is_turned_and_a_tied_embedding_is_not(
    turn: Callable[[nn.Module], None], made: type[nn.Module]
) -> None:
    model = nn.Sequential(nn.Embedding(9, 8), nn.Sequential(nn.Linear(8, 8)), VocabularyHead(8, 9))
    model[2].weight = model[0].weight
    turn(model)
    assert isinstance(model[1][0], made)
    assert isinstance(model[2], made)
    assert model[2].weight is model[0].weight  # which a shortlist picks rows of
    assert model[0].weight.dtype == torch.float32


@needs_native
@pytest.mark.parametrize(("precision", "most"), [("int8", 0.1), ("bf16", 0.02)])
def test_a_run_loads_in_reduced_precision(base: Path, precision: Precision, most: float) -> None:
    model, exact = transduce.load(base, "cpu", precision), transduce.load(base, "cpu")
    assert model.info()["engine"] == "native"
    texts = ["abcde", "ab", "edc"]
    translations = model.translate_batch(texts)
    assert [one.text for one in translations] == [model.translate(text).text for text in texts]
    pairs = [(text, one.text) for text, one in zip(texts, translations, strict=True)]
    (right, own) = (list(one.score(pairs)) for one in (exact, model))
    for a, b in zip(right, own, strict=True):
        assert a != b and b == pytest.approx(a, rel=most)


@needs_native
def test_models_beyond_the_engine_multiply_with_it(data: Path, tmp_path: Path) -> None:
    settings = tiny_settings(data)
    settings["model"] |= {side: {"kind": "recurrent"} for side in ("encoder", "decoder")}
    run, _ = transduce.train(settings, tmp_path / "run")
    model = transduce.load(run, "cpu", "int8")
    assert model.info()["engine"] == "pytorch"
    assert any(isinstance(part, NativeLinear) for part in model.model.modules())
    assert model.translate("abc").log_prob != transduce.load(run, "cpu").translate("abc").log_prob


def test_where_a_precision_cannot_be_had(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="precision 'int8' runs on a CPU only, not on 'cuda'"):
        transduce.load(base, "cuda", "int8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(base / "cache"))
    monkeypatch.setattr("shutil.which", lambda name: None)
    asked = rf"precision 'bf16' on a CPU needs the native engine \(.*{COMPILERS[-1]}.*use float32"
    with pytest.raises(SettingError, match=asked):
        transduce.load(base, "cpu", "bf16", "pytorch")


@pytest.mark.system
@needs_native
@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_decoding_in_bf16_without_instructions_for_it_is_told(
    base: Path, instructions: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, instructions)
    transduce.load(base, "cpu", "bf16")
    slow = [record.getMessage() for record in caplog.records if "bfloat16" in record.getMessage()]
    assert len(slow) == (instructions != "avx512-bf16"), slow


@pytest.mark.parametrize(
    ("overrides", "seconds", "message"),
    [
        (("training.precision=bf16",), 9.0, "bf16: a matrix product takes 9 times as long in bf"),
        (("training.precision=bf16",), 0.3, ""),
        (
            (),
            0.4,
            "this processor multiplies matrices 2.5 times as fast in bfloat16 as in float32: "
            'training.precision = "bf16" may save time',
        ),
        ((), 0.9, ""),
    ],
)
def test_a_training_tells_of_slow_and_of_fast_bf16(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    overrides: tuple[str, ...],
    seconds: float,
    message: str,
) -> None:
    times = {torch.float32: 1.0, torch.bfloat16: seconds}
    monkeypatch.setattr(kernels, "_seconds", lambda operand: times[operand.dtype])
    transduce.train(tiny_settings(data, "training.steps=1", *overrides), tmp_path / "run")
    lines = [line for line in capsys.readouterr().err.splitlines() if "bf16" in line]
    assert len(lines) == bool(message) and "".join(lines).startswith(message)
    gpu = torch.device("cuda")
    assert kernels.relative_slowdown(gpu) == kernels.slow_bf16_hint(gpu) == ""
