"""Tests under each setting of the processor that this machine allows: `make test-processors`.

python tests/processors.py [SETTING ...] [-- PATH ...]
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

from transduce.engine.build import processor_features

PATHS = ("tests/agreement", "tests/contract", "tests/learning")
PYTEST = ("-q", "--numprocesses", "2", "--dist", "loadfile", "-m", "not slow")
CAPABILITY = "import torch; print(torch.backends.cpu.get_cpu_capability())"


class Setting(NamedTuple):
    """Instructions of PyTorch, its libraries and the native engine: a name, processor features that
    it needs, environment variables."""

    name: str
    features: tuple[str, ...]
    variables: dict[str, str]


SETTINGS = (
    Setting("as-it-is", (), {}),
    Setting(
        "avx512-without-amx",
        ("amx_tile",),
        {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    ),
    Setting(
        "avx2",
        ("avx2", "fma"),
        {
            "ATEN_CPU_CAPABILITY": "avx2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "TRANSDUCE_ENGINE_INSTRUCTIONS": "avx2",
        },
    ),
    Setting(
        "sse4",
        ("sse4_1",),
        {
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
            "TRANSDUCE_ENGINE_INSTRUCTIONS": "baseline",
        },
    ),
    Setting(
        "arm-without-dotprod",
        ("asimddp",),
        {"ATEN_CPU_CAPABILITY": "default", "TRANSDUCE_ENGINE_INSTRUCTIONS": "baseline"},
    ),
)


def passes(setting: Setting, paths: list[str]) -> bool:
    """Run the tests under a setting."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", **setting.variables}
    show = subprocess.run(
        [sys.executable, "-c", CAPABILITY], env=env, capture_output=True, text=True
    )
    variables = " ".join(f"{name}={value}" for name, value in setting.variables.items())
    write(f"{setting.name}: {variables} (PyTorch: {show.stdout.strip()})")
    return not subprocess.run([sys.executable, "-m", "pytest", *PYTEST, *paths], env=env).returncode


def write(line: str) -> None:
    sys.stdout.write(f"=== {line}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Status: 1 where tests fail, or fewer settings ran than two, or than were named."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, paths = arguments[:split], arguments[split + 1 :]
    if unknown := set(names) - {setting.name for setting in SETTINGS}:
        write(f"no such setting: {', '.join(sorted(unknown))}")
        return 2
    chosen = [setting for setting in SETTINGS if not names or setting.name in names]
    features = processor_features()
    allowed = [setting for setting in chosen if features.issuperset(setting.features)]
    for setting in chosen:
        if setting not in allowed:
            missing = sorted(set(setting.features) - features)
            write(f"{setting.name}: this machine lacks {', '.join(missing)}")
    results = {setting.name: passes(setting, paths or list(PATHS)) for setting in allowed}
    for name, passed in results.items():
        write(f"{name}: {'passed' if passed else 'FAILED'}")
    if len(results) < (len(names) or 2):
        write(f"only {len(results)} of {len(chosen)} settings ran")
        return 1
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
