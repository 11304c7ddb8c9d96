"""Compilation of the native engine: its cache, its instruction sets, and its refusals."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest
import torch

from helpers.native import INSTRUCTIONS, needs_native
from transduce.engine import build
from transduce.engine.instructions import (
    ARM64,
    VARIABLE,
    X86_64,
    available,
    chosen_instructions,
    instruction_sets,
)
from transduce.engine.library import ModelShape, StackShape, engine_library
from transduce.errors import SettingError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "transduce" / "engine"


def test_the_best_instruction_set_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert instruction_sets() == X86_64
    assert [one.name for one in available(frozenset({"avx2", "fma", "sse2"}))] == [
        "avx2",
        "baseline",
    ]
    every = frozenset(feature for one in X86_64 for feature in one.features)
    assert available(every) == list(X86_64)
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert available(frozenset({"asimddp"})) == list(ARM64)
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert available(every) == []
    with pytest.raises(SettingError, match=r"does not support .* on riscv64"):
        chosen_instructions()


def test_an_instruction_set_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "baseline")
    assert chosen_instructions().name == "baseline"
    monkeypatch.setenv(VARIABLE, "sse9")
    with pytest.raises(SettingError, match=rf"{VARIABLE} = 'sse9': this processor has .*baseline"):
        chosen_instructions()


def test_no_compiler_is_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SettingError, match=r"needs a C\+\+ compiler once \(c\+\+, g\+\+"):
        build.library_path(X86_64[-1])
    assert list(cache.iterdir()) == []


def test_a_failing_compiler_is_one_line(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'no such option' >&2\necho more >&2\nexit 1\n")
    compiler.chmod(0o700)
    monkeypatch.setattr("shutil.which", lambda name: str(compiler))
    with pytest.raises(SettingError, match=r"could not compile the native engine: no such option$"):
        build.library_path(X86_64[-1])
    assert list(cache.iterdir()) == []


def test_a_cache_that_others_can_write_is_refused(cache: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    with pytest.raises(SettingError, match="can be written by others; set XDG_CACHE_HOME"):
        build.library_path(X86_64[-1])


def test_a_cache_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SettingError, match="needs a directory for its library"):
        build.library_path(X86_64[-1])


@needs_native
def test_it_is_compiled_once_and_for_its_owner_alone(cache: Path) -> None:
    chosen = available()[-1]
    path = build.library_path(chosen)
    assert [one.name for one in cache.iterdir()] == [path.name]
    assert cache.stat().st_mode & 0o077 == 0
    before = path.stat().st_mtime_ns
    assert build.library_path(chosen) == path
    assert path.stat().st_mtime_ns == before
    symbols = ctypes.CDLL(os.fspath(path))
    assert symbols.engine_lanes() >= 4


def test_sources_and_options_decide_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {build._digest(one) for one in (*X86_64, *ARM64[:1])}
    assert len(names) == len(X86_64) + 1
    before = build._digest(X86_64[0])
    monkeypatch.setattr(build, "OPTIONS", (*build.OPTIONS, "-g"))
    assert build._digest(X86_64[0]) != before


@needs_native
@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_what_is_out_of_range_is_refused(instructions: str) -> None:
    library = engine_library(instructions)

    def shape(**changes: int) -> ModelShape:
        sizes = {"layers": 1, "heads": 2, "head_width": 4, "inner": 8, "max_positions": 4}
        kinds = {"positions": 3, **{k: v for k, v in changes.items() if k != "width"}}
        stack = StackShape(**{**sizes, **kinds})  # type: ignore[arg-type]
        return ModelShape(stack, stack, changes.get("width", 8), 9, 9, 0, 1.0)

    wrong = ({"layers": 0}, {"heads": -1}, {"width": 0}, {"head_width": 1 << 30}, {"positions": 9})
    for changes in (*wrong, {"activation": 7}, {"max_positions": 0}):
        assert library.engine_new(shape(**changes)) is None, changes
    model = library.engine_new(shape())
    values = torch.zeros(9, 9)
    at = values.data_ptr()
    assert library.engine_load(model, b"head", at, None, 9, 8) == 0
    assert library.engine_load(model, b"head", at, None, 8, 9) == 2
    assert library.engine_load(model, b"encoder.norm", at, at, 8, 1) == 1
    assert library.engine_load(model, b"encoder.layers.1.feed_forward.outer", at, at, 8, 8) == 1
    values[0, 0] = float("nan")
    assert library.engine_load(model, b"head", at, None, 9, 8) == 3
    ids = torch.tensor([5], dtype=torch.int32)
    assert library.engine_complete(model) == 0
    assert library.state_new(model, ids.data_ptr(), ids.data_ptr(), 1) is None
    library.engine_delete(model)
