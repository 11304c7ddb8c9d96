"""Instruction sets that the engine is compiled for, and the best set of this processor."""

from __future__ import annotations

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


def instruction_sets() -> tuple[InstructionSet, ...]:
    """Instruction sets of this kind of processor, best first; empty without a port."""
    machine = platform.machine().lower()
    if sys.platform == "win32":  # its usual compiler has no vector extension
        return ()
    if machine in ("x86_64", "amd64"):
        return X86_64
    return ARM64 if machine in ("aarch64", "arm64") else ()


def processor_features() -> frozenset[str]:
    """Features of the processor, as Linux names them; empty where they are unknown."""
    if sys.platform == "darwin":  # every Mac with an ARM processor has it
        return frozenset({"asimddp"} if platform.machine() == "arm64" else ())
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


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
