"""Outputs have the bits of the kept hashes with every instruction set and in WebAssembly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.native import INSTRUCTIONS, needs_native
from helpers.one_answer import (
    PRECISIONS,
    SOURCES,
    has_one_answer,
    hash_of,
    kept_hashes,
    line_of,
    missing,
    native_hash,
)
from helpers.web import COMPILING, needs_node, needs_wasm, translated
from transduce.engine.build import VARIABLE, WASM, InstructionSet
from transduce.nn.precision import Precision
from transduce.web.page import Additions, model_file

PLAIN = (WASM[1], WASM[1])


@needs_native
@pytest.mark.timeout(COMPILING)
@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("source", SOURCES)
def test_outputs_are_those_of_every_processor(
    monkeypatch: pytest.MonkeyPatch, instructions: str, precision: Precision, source: str
) -> None:
    if not has_one_answer(instructions, precision):
        pytest.skip(f"{precision} with {instructions} is an answer of its own")
    if (reason := missing(source)) is not None:
        pytest.skip(reason)
    monkeypatch.setenv(VARIABLE, instructions)
    assert native_hash(source, precision) == kept_hashes()[source][precision]


@pytest.mark.system
@pytest.mark.timeout(COMPILING)
@needs_node
@needs_wasm
@pytest.mark.parametrize("modules", [WASM, PLAIN], ids=["relaxed", "plain"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_page_has_them_in_int8(
    tmp_path: Path, modules: tuple[InstructionSet, ...], source: str
) -> None:
    if (reason := missing(source)) is not None:
        pytest.skip(reason)
    lines = []
    for translator, texts in SOURCES[source]():
        search: Any = translator.backend
        file = model_file(translator, "run", "int8", Additions(search.shortlist))
        for answer in translated(tmp_path, file, texts, modules):
            lines.append(line_of(answer["text"], answer["score"], answer["log_prob"]))
    assert hash_of(lines) == kept_hashes()[source]["int8"]
