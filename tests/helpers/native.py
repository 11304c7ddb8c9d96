"""The native engine in tests: instruction sets of this processor, or a reason to skip."""

from __future__ import annotations

import shutil

import pytest

from transduce.engine.build import COMPILERS
from transduce.engine.instructions import available

HAS_COMPILER = any(map(shutil.which, COMPILERS))
INSTRUCTIONS = [one.name for one in available()]
needs_native = pytest.mark.skipif(
    not (HAS_COMPILER and INSTRUCTIONS), reason=f"needs a C++ compiler: {', '.join(COMPILERS)}"
)
