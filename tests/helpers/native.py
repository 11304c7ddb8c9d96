"""The native engine in tests: instruction sets of this processor, or a reason to skip."""

from __future__ import annotations

import shutil
from typing import Any

import pytest

import transduce
from transduce import Run
from transduce.engine.build import COMPILERS
from transduce.engine.instructions import available

HAS_COMPILER = any(map(shutil.which, COMPILERS))
INSTRUCTIONS = [one.name for one in available()]
needs_native = pytest.mark.skipif(
    not (HAS_COMPILER and INSTRUCTIONS), reason=f"needs a C++ compiler: {', '.join(COMPILERS)}"
)

EACH_ENGINE: list[Any] = ["pytorch", pytest.param("native", marks=needs_native)]
"""Parameters of a fixture: both engines that follow every option."""


def on_engine(engine: Any, run: Run) -> Run:
    """The run, decoding with that engine."""
    return run if engine == "pytorch" else transduce.load(run.path, engine=engine)
