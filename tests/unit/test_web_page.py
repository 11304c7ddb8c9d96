"""Model files and pages for the engine in WebAssembly: contents and refusals."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import transduce
from helpers.random_translator import random_translator
from transduce.engine import build
from transduce.engine.build import WASM
from transduce.errors import SettingError
from transduce.runs.exporting import export_run
from transduce.web.page import model_file

RUN = Path(__file__).parents[1] / "runs" / "0.1.0" / "translation"


def contents(file: bytes) -> tuple[dict[str, Any], bytes]:
    file = gzip.decompress(file)
    length = int.from_bytes(file[:4], "little")
    return json.loads(file[4 : 4 + length]), file[4 + length :]


def test_int8_rounds_all_matrices_but_embeddings() -> None:
    translator = transduce.load(RUN, "cpu").translator
    facts, content = contents(model_file(translator, "run", "int8"))
    weights = translator.model.state_dict()
    assert {name for name, *_ in facts["arrays"]} == set(weights)
    for name, shape, kind, offset in facts["arrays"]:
        right = weights[name].numpy()
        assert shape == list(right.shape)
        is_exact = len(shape) == 1 or name.endswith((".embedding.weight", "head.weight"))
        assert kind == ("float32" if is_exact else "int8"), name  # the head is tied
        if kind == "float32":
            shown = np.frombuffer(content, "<f4", right.size, offset).reshape(shape)
            assert np.array_equal(shown, right)
        else:
            scale = np.frombuffer(content, "<f4", shape[0], offset)[:, None]
            levels = np.frombuffer(content, np.int8, right.size, offset + 4 * shape[0])
            assert np.abs(levels.reshape(shape) * scale - right).max() <= 0.51 * scale.max()


@pytest.mark.parametrize(
    ("decoder", "decoding", "named"),
    [
        ({"kind": "recurrent"}, {}, "model.decoder.kind = 'recurrent'"),
        ({}, {"method": "sample"}, "decoding.method = 'sample'"),
        ({}, {"repetition_penalty": 1.5}, "decoding.repetition_penalty"),
        ({}, {"minimum_risk": "chrf"}, "decoding.minimum_risk"),
    ],
)
def test_what_the_engine_lacks_is_refused(decoder: Any, decoding: Any, named: str) -> None:
    translator = random_translator(decoder=decoder, decoding=decoding, trained=False)
    with pytest.raises(SettingError, match=f"engine for web pages has no {named}"):
        model_file(translator, "run", "int8")


def test_without_the_compiler_one_line_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    monkeypatch.setattr(build, "PREBUILT", tmp_path)
    assert build.build_refusal(WASM[0]) == build.NO_ZIG
    with pytest.raises(SettingError, match="needs the compiler zig once; pip install ziglang"):
        export_run(RUN, tmp_path / "page.html", form="html")
    assert not (tmp_path / "page.html").exists()


def test_a_page_must_end_in_html(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"page must end in \.html; write page\.html"):
        export_run(RUN, tmp_path / "page", form="html")
