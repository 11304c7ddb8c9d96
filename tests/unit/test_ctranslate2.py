"""Models that CTranslate2 cannot express are refused by name; the weights stay as they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.by_ctranslate2 import ctranslate2_model
from helpers.random_translator import random_translator
from transduce import RunError, SettingError
from transduce.interop.ctranslate2 import check_ctranslate2_expressible
from transduce.runs.exporting import _positions, export_run

RUN = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"


@pytest.mark.parametrize(
    ("stacks", "named"),
    [
        ({"encoder": {"kind": "recurrent"}}, "model.encoder.kind = 'recurrent'"),
        ({"encoder": {"kind": "convolution"}}, "model.encoder.kind = 'convolution'"),
        ({"encoder": {"kind": "text-cnn"}}, "model.encoder.kind = 'text-cnn'"),
        ({"decoder": {"kind": "recurrent"}}, "model.decoder.kind = 'recurrent'"),
        ({"encoder": {"positions": "alibi"}}, "model.encoder.positions = 'alibi'"),
        ({"decoder": {"positions": "alibi"}}, "model.decoder.positions = 'alibi'"),
        ({"decoder": {"d_head": 3}}, "model.decoder.d_head = 3"),
        ({"encoder": {"norm_epsilon": 1e-6}}, "norm_epsilon"),
    ],
)
def test_models_that_it_cannot_express(stacks: dict[str, Any], named: str) -> None:
    with pytest.raises(RunError) as caught:
        check_ctranslate2_expressible(random_translator(**stacks, trained=False).recipe.model)
    assert named in str(caught.value)


def test_positions_are_enough_but_not_without_end() -> None:
    assert _positions(random_translator()) == 1024
    long = random_translator(decoding={"max_length_extra": 1_000_000})
    assert _positions(long) == 1 << 14


def test_weights_stay_as_they_are(tmp_path: Path) -> None:
    translator = random_translator()
    before = {name: tensor.clone() for name, tensor in translator.model.state_dict().items()}
    ctranslate2_model(translator, tmp_path / "model", "int8")
    for name, tensor in translator.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_bf16_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="not bf16"):
        ctranslate2_model(random_translator(), tmp_path / "model", "bf16")


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded = [name for name in sys.modules if name.startswith("ctranslate2.")]
    for name in ["ctranslate2", *loaded]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SettingError, match="needs the extra 'ctranslate2'"):
        export_run(RUN, tmp_path / "model")
