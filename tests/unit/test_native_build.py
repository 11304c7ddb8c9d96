"""Compilation of the native engine: its cache, its instruction sets, and its refusals."""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from helpers.native import INSTRUCTIONS, needs_native
from transduce.engine import build, library
from transduce.engine.build import (
    ARM64,
    LEARNER,
    VARIABLE,
    WASM,
    WHEELS,
    X86_64,
    Target,
    available,
    chosen_instructions,
    instruction_sets,
)
from transduce.engine.library import (
    Cancelled,
    ModelShape,
    SearchOptions,
    StackShape,
    engine_library,
)
from transduce.errors import SettingError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(build.FLAGS, "-O0")  # compiled in a third of the time
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


@pytest.mark.system
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


@pytest.mark.system
@needs_native
def test_it_is_compiled_once_and_for_its_owner_alone(cache: Path) -> None:
    chosen = available()[-1]
    path = build.library_path(chosen)
    assert {one.name for one in cache.iterdir()} == {path.name, build._sum_of(path).name}
    assert cache.stat().st_mode & 0o077 == 0
    before = path.stat().st_mtime_ns
    assert build.library_path(chosen) == path
    assert path.stat().st_mtime_ns == before
    symbols = ctypes.CDLL(os.fspath(path))
    assert symbols.engine_lanes() >= 4


def _cut(path: Path) -> None:
    os.truncate(path, 1000)


def _linked(path: Path) -> None:
    elsewhere = path.replace(path.parents[2] / "elsewhere")
    path.symlink_to(elsewhere)


@pytest.mark.parametrize(
    "harm",
    [
        _cut,
        _linked,
        lambda path: path.write_bytes(b""),
        lambda path: path.chmod(0o666),
        lambda path: build._sum_of(path).unlink(),
        lambda path: build._sum_of(path).write_bytes(b"\xff"),
    ],
)
def test_a_library_that_others_or_a_fall_changed_is_compiled_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], object]
) -> None:
    compiled = b"a library" * 1000

    def compiler(command: list[str], **settings: Any) -> SimpleNamespace:
        Path(command[-1]).write_bytes(compiled)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr("subprocess.run", compiler)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/c++")
    path = build.library_path(X86_64[-1])
    assert path.read_bytes() == compiled
    harm(path)
    assert not build._is_intact(path)
    assert build.library_path(X86_64[-1]) == path and build._is_intact(path)
    assert path.read_bytes() == compiled and not path.is_symlink()


def test_a_library_of_the_package_comes_first(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(build, "PREBUILT", tmp_path / "prebuilt")
    assert build.build_refusal(X86_64[-1]) == build.NO_COMPILER
    (tmp_path / "prebuilt").mkdir()
    path = tmp_path / "prebuilt" / build._name(X86_64[-1])
    path.write_bytes(b"no library")
    assert build.library_path(X86_64[-1]) == path and not list(cache.iterdir())
    assert build.build_refusal(X86_64[-1]) is None
    with pytest.raises(SettingError, match=r"cannot be loaded: .*; delete it to have it"):
        library._loaded.__wrapped__(X86_64[-1])


def test_a_reason_is_told_once(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "transduce"):
        for reason in ("no compiler", "no compiler", "another"):
            build.log_once(reason)
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "no compiler",
        "another",
    ]


class FakeHook:
    """The part of hatchling's interface that the hook uses."""

    target_name = "wheel"
    root = str(ROOT)

    def __class_getitem__(cls, item: object) -> type[FakeHook]:
        return cls

    def __init__(self) -> None:
        self.said: list[str] = []
        self.app = SimpleNamespace(display_warning=self.said.append)


def hook_with(monkeypatch: pytest.MonkeyPatch, compiler: str | None) -> tuple[Any, dict[str, Any]]:
    module = SimpleNamespace(BuildHookInterface=FakeHook)
    monkeypatch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", module)
    monkeypatch.setattr("shutil.which", lambda name: compiler)
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    monkeypatch.syspath_prepend(FakeHook.root)
    hook = importlib.import_module("hatch_build").EngineHook()
    monkeypatch.delitem(sys.modules, "hatch_build")
    return hook, {"force_include": {}}


@pytest.mark.system
def test_a_wheel_carries_every_instruction_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "c++"  # writes the file after -o
    compiler.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho made > "$2"\n')
    compiler.chmod(0o700)
    hook, data = hook_with(monkeypatch, str(compiler))
    hook.initialize("editable", data)
    assert data == {"force_include": {}}
    hook.initialize("standard", data)
    names = [f"transduce/engine/prebuilt/{build._name(each)}" for each in instruction_sets()]
    assert list(data["force_include"].values()) == names
    assert data["tag"].startswith("py3-none-") and "-" not in data["tag"][len("py3-none-") :]
    assert not data["pure_python"] and all(map(os.path.exists, data["force_include"]))
    hook.finalize("standard", data, "")
    assert not any(map(os.path.exists, data["force_include"]))


def test_a_wheel_without_a_compiler_is_pure(monkeypatch: pytest.MonkeyPatch) -> None:
    hook, data = hook_with(monkeypatch, None)
    hook.initialize("standard", data)
    assert data == {"force_include": {}}
    assert hook.said == [f"wheel without the native engine: {build.NO_COMPILER}"]


@pytest.mark.parametrize("target", WHEELS, ids=lambda target: target.tag)
def test_a_library_for_another_system_is_the_one_looked_for_there(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = instruction_sets(target.machine)
    made = tmp_path / "engine.so"
    for chosen in sets:
        compiling, linking = build._commands(["zig", "c++"], chosen, target, made)
        assert compiling[:4] == linking[:4] == ["zig", "c++", "-target", target.zig]
        assert (
            "-shared" in linking and "-shared" not in compiling and "-march" not in str(compiling)
        )
        assert ("-fPIC" in compiling) == (target.system != "win32")
        assert compiling[-1] in linking and linking[-1] == str(made)
    names = [build._name(chosen, target) for chosen in sets]
    assert len(set(names)) == len(sets)
    monkeypatch.setattr("sys.platform", target.system)
    monkeypatch.setattr("platform.machine", lambda: target.machine.upper())
    assert instruction_sets() == sets
    assert [build._name(chosen) for chosen in sets] == names


def test_a_wheel_for_another_system_has_its_tag_and_its_libraries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hook, data = hook_with(monkeypatch, "c++")
    compiled = []

    def compile_for(chosen: Any, directory: Path, target: Any = None) -> Path:
        compiled.append((chosen.name, target))
        path: Path = directory / build._name(chosen, target)
        path.touch()
        return path

    monkeypatch.setattr(build, "compile_library", compile_for)
    monkeypatch.setenv("TRANSDUCE_WHEEL", "manylinux_2_17_aarch64")
    hook.initialize("standard", data)
    hook.finalize("standard", data, "")
    assert data["tag"] == "py3-none-manylinux_2_17_aarch64"
    assert [name for name, _ in compiled] == [each.name for each in ARM64]
    assert {target for _, target in compiled} == {WHEELS[1]}
    monkeypatch.setenv("TRANSDUCE_WHEEL", "beos")
    with pytest.raises(ValueError, match="'beos' is none of manylinux_2_17_x86_64, "):
        hook.initialize("standard", data)


MAKE = "the modules for pages are not of the present sources: run `make wasm`"


def test_the_modules_for_pages_are_of_the_present_sources() -> None:
    modules = {path.name for path in build.PREBUILT.glob("*.wasm")}
    assert modules == {build._name(each) for each in (*WASM, *LEARNER)}, MAKE


@pytest.mark.slow
@pytest.mark.timeout(4 * build.TIMEOUT)
def test_make_wasm_builds_the_same_modules(tmp_path: Path) -> None:
    pinned = re.findall(r"^ziglang==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    try:
        if [version("ziglang")] != pinned:
            pytest.skip(f"ziglang is not {pinned}, whose modules are in the package")
    except PackageNotFoundError:
        pytest.skip("ziglang is not installed")
    subprocess.run([sys.executable, ROOT / "packaging" / "wasm.py", tmp_path], check=True)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in build.PREBUILT.glob("*.wasm")}, MAKE


def test_sources_and_options_decide_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {build._digest(one) for one in (*X86_64, *ARM64[:1])}
    assert len(names) == len(X86_64) + 1
    before = build._digest(X86_64[0])
    monkeypatch.setattr(build, "OPTIONS", (*build.OPTIONS, "-g"))
    assert build._digest(X86_64[0]) != before


@needs_native
@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_what_is_out_of_range_is_refused(instructions: str) -> None:
    engine = engine_library(instructions)

    def shape(**changes: int) -> ModelShape:
        sizes = {"layers": 1, "heads": 2, "head_width": 4, "inner": 8, "max_positions": 4}
        kinds = {"positions": 3, **{k: v for k, v in changes.items() if k != "width"}}
        stack = StackShape(**{**sizes, **kinds})  # type: ignore[arg-type]
        return ModelShape(stack, stack, changes.get("width", 8), 9, 9, 0, 1.0)

    wrong = ({"layers": 0}, {"heads": -1}, {"width": 0}, {"head_width": 1 << 30}, {"positions": 9})
    for changes in (*wrong, {"activation": 7}, {"max_positions": 0}):
        assert engine.engine_new(shape(**changes)) is None, changes
    model = engine.engine_new(shape())
    values = torch.zeros(9, 9)
    at = values.data_ptr()

    def status(name: bytes, *sizes: int, bias: int | None = None, by: int | None = None) -> object:
        return engine.engine_load(model, name, at, bias, *sizes, by)

    assert status(b"head", 9, 8) == 0
    assert status(b"head", 8, 9) == 2
    assert status(b"encoder.norm", 8, 1, bias=at) == 1
    assert status(b"encoder.layers.1.feed_forward.outer", 8, 8, bias=at) == 1
    divisors = torch.ones(9)
    by = divisors.data_ptr()
    assert status(b"head", 9, 8, by=by) == 0
    assert status(b"encoder.layers.0.self_attention_residual.norm", 8, 1, bias=at, by=by) == 2
    divisors[8] = 0  # no level by 0 is finite
    assert status(b"head", 9, 8, by=by) == 3
    values[0, 0] = float("nan")
    assert status(b"head", 9, 8) == 3
    ids = torch.tensor([5], dtype=torch.int32)
    assert engine.engine_complete(model) == 0
    assert engine.state_new(model, ids.data_ptr(), ids.data_ptr(), 1) is None
    engine.engine_delete(model)


@needs_native
@pytest.mark.parametrize("instructions", INSTRUCTIONS)
def test_what_is_out_of_range_of_a_decoder_alone_is_refused(instructions: str) -> None:
    engine = engine_library(instructions)
    stack = StackShape(1, 2, 4, 8, 0, 1, 3, 4, 0, 1e-5)  # four learned positions
    model = engine.engine_new(ModelShape(StackShape(), stack, 8, 0, 9, 0, 1.0))
    values = torch.zeros(24, 8)
    at = values.data_ptr()
    layer = b"decoder.layers.0."
    for name, rows, columns in (
        (b"front_end.embedding", 9, 8),
        (b"head", 9, 8),
        (b"decoder.positions.table", 4, 8),
        (b"decoder.norm", 8, 1),
        (layer + b"self_attention.query_key_value", 24, 8),
        (layer + b"self_attention.output", 8, 8),
        (layer + b"self_attention_residual.norm", 8, 1),
        (layer + b"feed_forward.inner", 8, 8),
        (layer + b"feed_forward.outer", 8, 8),
        (layer + b"feed_forward_residual.norm", 8, 1),
    ):
        assert engine.engine_complete(model) == 0
        assert engine.engine_load(model, name, at, at, rows, columns, None) == 0, name
    for name in (b"target_front_end.embedding", b"encoder.norm", layer + b"cross_attention.query"):
        assert engine.engine_load(model, name, at, at, 9, 8, None) == 1, name
    assert engine.engine_complete(model) == 1
    one = torch.tensor([1], dtype=torch.int32)
    assert engine.state_new(model, one.data_ptr(), one.data_ptr(), 1) is None
    state = engine.state_new(model, None, None, 0)

    def step(ids: list[int], counts: list[int], attention: int | None = None) -> int:
        given = [torch.tensor(values, dtype=torch.int32) for values in (ids, counts)]
        pointers = (values.data_ptr() for values in given)
        found: int = engine.state_step(
            state, *pointers, len(counts), None, None, None, attention, 9
        )
        return found

    assert step([9], [1]) == step([-1], [1]) == step([1], [-1]) == step([], []) == 0
    assert step([1], [1], attention=at) == 0
    assert step([1] * 5, [5]) == 3
    assert step([1, 2, 3], [1, 2]) == 1
    assert step([1], [1]) == step([1] * 3, [1] * 3) == 0
    assert step([1, 1], [0, 2]) == 1 and step([1], [0, 1]) == 3
    options = {"beam": 1, "n_best": 1, "eos": 3, "window": 4, "kept": 3}

    def found(**changes: int) -> bool:
        arguments = SearchOptions(**{**options, **changes})
        rows = [one.data_ptr()] * 4
        results = engine.search_run(model, None, None, *rows, 1, arguments, Cancelled())
        engine.search_delete(results)
        return results is not None

    assert found()
    for changes in ({"eos": 9}, {"kept": 5}, {"kept": 0}, {"window": 5}, {"window": -1}):
        assert not found(**changes), changes
    assert not found(beam=0) and not found(n_forbidden=-1)
    engine.state_delete(state)
    engine.engine_delete(model)


@needs_native
@pytest.mark.parametrize("instructions", INSTRUCTIONS)
@pytest.mark.parametrize("precision", [0, 1, 2])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("at", [3, 69])
def test_a_row_that_is_not_finite_is_nan_in_every_precision(
    instructions: str, precision: int, wrong: float, at: int
) -> None:
    engine = engine_library(instructions)
    generator = torch.Generator().manual_seed(1)
    weight, x = (torch.randn(rows, 70, generator=generator) for rows in (40, 3))
    x[1, at] = wrong
    outputs = torch.zeros(3, 40)
    linear = engine.linear_new(precision, weight.data_ptr(), None, 40, 70)
    assert engine.linear_apply(linear, x.data_ptr(), 3, outputs.data_ptr(), 1) == 1
    engine.linear_delete(linear)
    assert not outputs[1].isfinite().any()
    assert outputs[[0, 2]].isfinite().all()


WITHOUT_THREADS = """
import ctypes, resource
import numpy as np
from transduce.engine.library import engine_library

engine = engine_library()
weight, x = (np.arange(n * 8, dtype=np.float32).reshape(n, 8) % 7 for n in (5, 256))
linear = engine.linear_new(0, weight.ctypes.data, None, 5, 8)
y, right = np.zeros((256, 5), np.float32), x @ weight.T
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), resource.RLIM_INFINITY))
assert engine.linear_apply(linear, x.ctypes.data, 256, y.ctypes.data, 4) == 1
assert np.array_equal(y, right)
"""


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory for stacks as Linux does")
@needs_native
def test_products_are_computed_where_no_thread_can_be_started() -> None:
    engine_library()  # compiled before
    subprocess.run([sys.executable, "-c", WITHOUT_THREADS], check=True)


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="compares with Linux")
@needs_native
def test_features_of_the_library_are_those_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    known = frozenset(build.FEATURES) & build.processor_features()
    path = Path(engine_library()._name)
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setattr(build, "library_path", lambda chosen: path)
    build._features_of_library.cache_clear()
    assert build.processor_features() == known
    build._features_of_library.cache_clear()


@pytest.mark.parametrize(
    ("answer", "best"), [(0, "amx"), (-1, "avx512-bf16")], ids=["granted", "refused"]
)
def test_tiles_are_taken_only_where_the_kernel_grants_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: int, best: str
) -> None:
    flags = " ".join(name for one in X86_64 for name in one.features)
    (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags : {flags}\n")
    asked: list[tuple[int, ...]] = []
    kernel = SimpleNamespace(syscall=lambda *numbers: asked.append(numbers) or answer)
    monkeypatch.setattr(build, "Path", lambda name: tmp_path / "cpuinfo")
    monkeypatch.setattr(build.ctypes, "CDLL", lambda name: kernel)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    build.tiles_allowed.cache_clear()
    assert available()[0].name == best
    assert asked == [(158, 0x1023, 18)]
    build.tiles_allowed.cache_clear()


def test_a_library_that_computes_wrongly_gives_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    sets = list(X86_64[-2:])
    works = {sets[0]: 0, sets[1]: 1}
    monkeypatch.setattr(build, "available", lambda: sets)
    monkeypatch.setattr(library, "available", lambda: sets)
    monkeypatch.setattr(
        library, "_loaded", lambda one: SimpleNamespace(name=one, engine_works=lambda: works[one])
    )
    assert engine_library().name == sets[1]
    assert "avx2 computes wrongly here; taking baseline" in caplog.text
    works[sets[1]] = 0
    with pytest.raises(SettingError, match="computes wrongly with baseline"):
        engine_library()
