"""Instruction sets that the engine is compiled for, and the best set of this processor."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from pathlib import Path
from typing import NamedTuple

from transduce.errors import SettingError

VARIABLE = "TRANSDUCE_ENGINE_INSTRUCTIONS"
"""Environment variable that names an instruction set instead of the best one."""
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")


class InstructionSet(NamedTuple):
    """An instruction set: its name, processor features that it needs, options of the compiler,
    True for WebAssembly."""

    name: str
    features: tuple[str, ...]
    options: tuple[str, ...]
    is_wasm: bool = False


class Target(NamedTuple):
    """A system that a wheel is for: of `sys.platform`, and `platform.machine()` in lower case; its
    name for zig, by default of none, and for the wheel."""

    system: str
    machine: str
    zig: str = ""
    tag: str = ""


WHEELS = (
    Target("linux", "x86_64", "x86_64-linux-gnu.2.17", "manylinux_2_17_x86_64"),
    Target("linux", "aarch64", "aarch64-linux-gnu.2.17", "manylinux_2_17_aarch64"),
    Target("win32", "amd64", "x86_64-windows-gnu", "win_amd64"),
    Target("darwin", "x86_64", "x86_64-macos.11.0", "macosx_11_0_x86_64"),
    Target("darwin", "arm64", "aarch64-macos.11.0", "macosx_11_0_arm64"),
)
"""Systems whose wheels zig compiles on any of them."""


def this_target() -> Target:
    """This system."""
    return Target(sys.platform, platform.machine().lower())


X86_64 = (
    InstructionSet(
        "avx512-bf16",
        (*_AVX512, "avx512_vnni", "avx512_bf16"),
        (*(f"-m{name}" for name in _AVX512), "-mavx512vnni", "-mavx512bf16", "-mfma"),
    ),
    InstructionSet(
        "avx512",
        (*_AVX512, "avx512_vnni"),
        (*(f"-m{name}" for name in _AVX512), "-mavx512vnni", "-mfma"),
    ),
    InstructionSet("avx2", ("avx2", "fma"), ("-mavx2", "-mfma")),
    InstructionSet("baseline", (), ()),
)
ARM64 = (
    InstructionSet("dotprod", ("asimddp",), ("-march=armv8.2-a+dotprod",)),
    InstructionSet("baseline", (), ()),
)
"""Best first."""
WASM = (
    InstructionSet("wasm-relaxed", (), ("-msimd128", "-mrelaxed-simd"), is_wasm=True),
    InstructionSet("wasm", (), ("-msimd128",), is_wasm=True),
)
"""For browsers and Node, with relaxed vectors and without them."""


def instruction_sets(machine: str | None = None) -> tuple[InstructionSet, ...]:
    """Instruction sets of a kind of processor, by default this one, best first; empty without a
    port."""
    machine = machine or this_target().machine
    if machine in ("x86_64", "amd64"):
        return X86_64
    return ARM64 if machine in ("aarch64", "arm64") else ()


def processor_features() -> frozenset[str]:
    """Features of the processor, as Linux names them; empty where they are unknown."""
    if sys.platform == "darwin" and platform.machine() == "arm64":  # every such Mac has it
        return frozenset({"asimddp"})
    if sys.platform in ("darwin", "win32"):
        return frozenset({"avx2", "fma"} if _has_avx2() else ())
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def _has_avx2() -> bool:
    if sys.platform == "win32":
        return bool(ctypes.windll.kernel32.IsProcessorFeaturePresent(40))
    present, size = ctypes.c_int(), ctypes.c_size_t(4)
    name = b"hw.optional.avx2_0"
    libc = ctypes.CDLL(None)
    libc.sysctlbyname(name, ctypes.byref(present), ctypes.byref(size), None, ctypes.c_size_t(0))
    return bool(present.value)


def available(features: frozenset[str] | None = None) -> list[InstructionSet]:
    """Instruction sets of a processor with these features, by default this one; best first."""
    known = processor_features() if features is None else features
    return [candidate for candidate in instruction_sets() if known.issuperset(candidate.features)]


def chosen_instructions(name: str | None = None) -> InstructionSet:
    """The instruction set of a name, by default the variable's, or the best; SettingError if
    none."""
    name = name or os.environ.get(VARIABLE) or None
    here = available()
    if name is None and here:
        return here[0]
    for candidate in here:
        if candidate.name == name:
            return candidate
    if not here:
        system = f"{sys.platform} on {platform.machine()}"
        raise SettingError(f"the native engine does not support {system}")
    names = ", ".join(candidate.name for candidate in here)
    raise SettingError(f"{VARIABLE} = {name!r}: this processor has {names}")
