"""Compilation of the engine: with the wheel, or once for an instruction set of this machine.

The library's name holds a hash of sources and options.  It is written under another name, flushed
and renamed: complete or absent.  A library that does not fit the checksum beside it, or that others
may have written, is compiled again.
"""

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import stat
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from transduce.errors import SettingError, first_line
from transduce.support.files import user_cache

VARIABLE = "TRANSDUCE_ENGINE_INSTRUCTIONS"
"""Environment variable that names an instruction set instead of the best one."""
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
_AMX = ("amx_tile", "amx_int8", "amx_bf16")


class InstructionSet(NamedTuple):
    """An instruction set: its name, processor features that it needs, options of the compiler,
    True for WebAssembly; module: the engine, or the trainer of pages."""

    name: str
    features: tuple[str, ...]
    options: tuple[str, ...]
    is_wasm: bool = False
    module: Literal["engine", "learner"] = "engine"


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
        "amx",
        (*_AVX512, "avx512_vnni", "avx512_bf16", *_AMX),
        (
            *(f"-m{name}" for name in _AVX512),
            *("-mavx512vnni", "-mavx512bf16", "-mfma", "-mamx-tile", "-mamx-int8", "-mamx-bf16"),
        ),
    ),
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
    InstructionSet("avx-vnni", ("avx2", "fma", "avx_vnni"), ("-mavx2", "-mfma", "-mavxvnni")),
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
LEARNER = tuple(instructions._replace(module="learner") for instructions in WASM)
"""The same of the trainer."""


def instruction_sets(machine: str | None = None) -> tuple[InstructionSet, ...]:
    """Instruction sets of a kind of processor, by default this one, best first; empty without a
    port."""
    machine = machine or this_target().machine
    if machine in ("x86_64", "amd64"):
        return X86_64
    return ARM64 if machine in ("aarch64", "arm64") else ()


FEATURES = (
    *("avx2", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512dq", "avx512vl"),
    *("avx512_vnni", "avx512_bf16"),
)
"""Features of x86-64 in the order of the bits of `engine_features` in interface.cpp."""
_MAC_NAMES = {"avx2": "avx2_0", "avx512_vnni": "avx512vnni", "avx512_bf16": "avx512bf16"}
"""Features that macOS names otherwise."""


def processor_features() -> frozenset[str]:
    """Features of the processor, as Linux names them; empty where they are unknown."""
    if sys.platform == "darwin" and platform.machine() == "arm64":  # every such Mac has it
        return frozenset({"asimddp"})
    if sys.platform == "darwin":  # it turns AVX-512 on at its first use, so its bits are not set
        return frozenset(name for name in FEATURES if _has_mac(_MAC_NAMES.get(name, name)))
    if sys.platform == "win32":
        return _features_of_library()
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            features = frozenset(value.split())
            return features if tiles_allowed(features) else features - set(_AMX)
    return frozenset()


@functools.cache
def tiles_allowed(features: frozenset[str]) -> bool:
    """True if the processor has tiles and Linux grants them to this process: they are asked for."""
    if not features.issuperset(_AMX) or platform.machine() != "x86_64":
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    try:
        return bool(ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0)
    except (OSError, AttributeError):
        return False


def _has_mac(name: str) -> bool:
    present, size = ctypes.c_int(), ctypes.c_size_t(4)
    libc = ctypes.CDLL(None)
    arguments = ctypes.byref(present), ctypes.byref(size), None, ctypes.c_size_t(0)
    failed = libc.sysctlbyname(f"hw.optional.{name}".encode(), *arguments)
    return not failed and bool(present.value)


@functools.cache
def _features_of_library() -> frozenset[str]:
    """Features as the library for every processor reads them; empty if there is none."""
    try:
        library = ctypes.CDLL(os.fspath(library_path(instruction_sets()[-1])))
    except (SettingError, OSError, IndexError):
        return frozenset()
    bits = library.engine_features()
    return frozenset(name for i, name in enumerate(FEATURES) if bits >> i & 1)


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


logger = logging.getLogger("transduce")

SOURCES = Path(__file__).parent / "native"
LEARNING = Path(__file__).parent / "learning"
"""Sources of the trainer, which includes those of the engine."""
PREBUILT = Path(__file__).parent / "prebuilt"
"""Libraries of the package: of a wheel the native ones, always the modules of WebAssembly."""
COMPILERS = ("c++", "g++", "clang++")
OPTIONS = (
    *("-std=c++17", "-O3"),
    # No -ffast-math: the order of every sum is written out, so that results do not depend on
    # neighbours, and linking with it would turn denormals off in the whole process.
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off"),
)
LIBRARY = ("-shared", "-fPIC", "-fvisibility=hidden", "-pthread")
"""Further options for a library of a system."""
DOTPROD = {"-march=armv8.2-a+dotprod": "-mcpu=generic+v8_2a+dotprod"}
"""Options as zig spells them."""
EXPORTS = {
    "engine": (
        *("malloc", "free", "engine_new", "engine_load", "engine_complete"),
        *("state_new", "state_step", "state_delete"),
        *("search_run", "search_delete", "search_not_a_number"),
        *(f"search_{name}" for name in ("counts", "lengths", "tokens", "log_probs", "scores")),
    ),
    "learner": (
        *("malloc", "free"),
        *(f"learner_{name}" for name in ("new", "delete", "initialise", "start_average")),
        *(f"learner_{name}" for name in ("count", "name", "rows", "columns", "numbers")),
        *(f"learner_{name}" for name in ("pass", "loss", "logits", "rate", "step")),
        *(f"learner_{name}" for name in ("attentions", "attention_name", "attention")),
    ),
}
"""Functions of the modules of WebAssembly; the linker leaves out what they do not call."""
MODULE = ("-target", "wasm32-wasi", "-mexec-model=reactor", "-fno-exceptions", "-fno-rtti", "-s")
"""Further options for a module of WebAssembly."""
FLAGS = "TRANSDUCE_ENGINE_FLAGS"
"""Environment variable with further options of the compiler, such as sanitizers."""
TIMEOUT = 600
"""Seconds."""
NO_COMPILER = (
    f"the native engine needs a C++ compiler once ({', '.join(COMPILERS)}); install one, or take "
    "--engine pytorch"
)
NO_ZIG = (
    "the engine for web pages, or another system, needs the compiler zig once; pip install ziglang"
)


def library_path(instructions: InstructionSet) -> Path:
    """The compiled library, of the package or of the cache; compiles it where it is missing.
    Raises SettingError without a compiler, or if the cache cannot be trusted or written."""
    name = _name(instructions)
    if (PREBUILT / name).is_file():
        return PREBUILT / name
    try:
        path = _cache_directory() / name
        return path if _is_intact(path) else compile_library(instructions, path.parent)
    except OSError as error:
        raise SettingError(
            f"the native engine needs a directory for its library ({error}); set XDG_CACHE_HOME"
        ) from None


def build_refusal(instructions: InstructionSet) -> str | None:
    """Reason that the library is unavailable, found without compiling it; None if available."""
    name = _name(instructions)
    try:
        if (PREBUILT / name).is_file() or _compiler(instructions) is not None:
            return None
        if not _is_intact(_cache_directory() / name):
            return NO_ZIG if instructions.is_wasm else NO_COMPILER
    except (OSError, SettingError) as error:
        return str(error)
    return None


def log_once(reason: str) -> None:
    """Log the reason that the engine is unavailable, once for each user and version of it."""
    digest = hashlib.sha256(reason.encode()).hexdigest()[:16]
    try:
        (_cache_directory() / f"told-{digest}").touch(exist_ok=False)
    except FileExistsError:
        return
    except (OSError, SettingError):  # no memory: say it each time
        pass
    logger.info("translating with PyTorch, slower: %s", reason)


def _name(instructions: InstructionSet, target: Target | None = None) -> str:
    suffix = "wasm" if instructions.is_wasm else "so"
    return f"{instructions.module}-{instructions.name}-{_digest(instructions, target)}.{suffix}"


def _compiler(instructions: InstructionSet, target: Target | None = None) -> list[str] | None:
    """Command of the compiler, for another target zig's."""
    if not instructions.is_wasm and target is None:
        return next(([path] for path in map(shutil.which, COMPILERS) if path), None)
    if (path := shutil.which("zig") or shutil.which("python-zig")) is not None:
        return [path, "c++"]
    return [sys.executable, "-m", "ziglang", "c++"] if find_spec("ziglang") else None


def _cache_directory() -> Path:
    """A directory that only its owner may write to."""
    directory = user_cache("engine")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.stat()
    if not _is_own(status):
        raise SettingError(
            f"{directory} belongs to another user or can be written by others; set XDG_CACHE_HOME "
            "to a directory of your own"
        )
    return directory


def _is_intact(path: Path) -> bool:
    """True for an unchanged library of the cache, of this user and writable by nobody else."""
    try:
        status = path.lstat()
        expected = _sum_of(path).read_text(encoding="ascii")
    except (FileNotFoundError, UnicodeDecodeError):
        return False
    if not (stat.S_ISREG(status.st_mode) and _is_own(status)):
        return False
    return hashlib.sha256(path.read_bytes()).hexdigest() == expected


def _is_own(status: os.stat_result) -> bool:
    """True for a file of this user that nobody else may write; Windows keeps a home to its user."""
    if sys.platform == "win32":
        return True
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _sum_of(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _flush(path: Path) -> None:
    """Have a file on the disk before it gets its name."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _options(instructions: InstructionSet) -> list[str]:
    if instructions.is_wasm:
        exports = (f"-Wl,--export={name}" for name in EXPORTS[instructions.module])
        return [*OPTIONS, *MODULE, *exports, *instructions.options]
    return [*OPTIONS, *LIBRARY, *instructions.options, *os.environ.get(FLAGS, "").split()]


def _commands(
    compiler: list[str], instructions: InstructionSet, target: Target | None, made: Path
) -> list[list[str]]:
    """Commands that make a library.  For another target linking is another, so that zig makes the
    standard library once, and not for each instruction set."""
    directory = LEARNING if instructions.module == "learner" else SOURCES
    source = str(directory / ("wasm.cpp" if instructions.is_wasm else "interface.cpp"))
    options = _options(instructions)
    if target is None or instructions.is_wasm:
        return [[*compiler, *options, source, "-o", str(made)]]
    compiler, compiled = [*compiler, "-target", target.zig], str(made.with_suffix(".o"))
    unused = ("-shared", "-fPIC") if target.system == "win32" else ("-shared",)
    options = [DOTPROD.get(option, option) for option in options if option not in unused]
    return [
        [*compiler, *options, "-c", source, "-o", compiled],
        [*compiler, "-shared", "-s", "-pthread", compiled, "-o", str(made)],
    ]


def _digest(instructions: InstructionSet, target: Target | None = None) -> str:
    system = [] if instructions.is_wasm else list((target or this_target())[:2])
    parts = [*system, *_options(instructions)]
    digest = hashlib.sha256("\0".join(parts).encode())
    directories = (SOURCES, LEARNING) if instructions.module == "learner" else (SOURCES,)
    for directory in directories:
        for path in sorted(directory.iterdir()):
            digest.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def compile_library(
    instructions: InstructionSet, directory: Path, target: Target | None = None
) -> Path:
    """Compile the library into a directory, for another target by zig.  Raises SettingError if that
    fails."""
    import subprocess
    import tempfile

    path = directory / _name(instructions, target)
    compiler = _compiler(instructions, target)
    if compiler is None:
        raise SettingError(NO_ZIG if instructions.is_wasm or target else NO_COMPILER)
    logger.info("compiling the native %s for %s (once)", instructions.module, instructions.name)
    with tempfile.TemporaryDirectory(dir=directory) as aside:
        made = Path(aside) / path.name
        for command in _commands(compiler, instructions, target, made):
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, timeout=TIMEOUT, check=False
                )
            except subprocess.TimeoutExpired:
                raise SettingError(f"{compiler[0]} took longer than {TIMEOUT} seconds") from None
            if done.returncode:
                reason = first_line(RuntimeError(done.stderr))
                raise SettingError(f"{compiler[0]} could not compile the native engine: {reason}")
        made.chmod(0o755)
        checksum = _sum_of(made)
        checksum.write_text(
            hashlib.sha256(made.read_bytes()).hexdigest(), encoding="ascii", newline="\n"
        )
        for written in (made, checksum):
            _flush(written)
        checksum.replace(_sum_of(path))
        return made.replace(path)
