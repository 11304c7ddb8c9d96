"""Modules of engine and trainer for web pages, compiled by zig into the package: `make wasm`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from transduce.engine.build import LEARNER, PREBUILT, WASM, compile_library


def main(directory: Path) -> None:
    """Write the modules of the present sources in place of all others."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as aside:
        made = [compile_library(instructions, Path(aside)) for instructions in (*WASM, *LEARNER)]
        for stale in directory.glob("*.wasm"):
            stale.unlink()
        for module in made:
            module.chmod(0o644)
            print(module.replace(directory / module.name))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PREBUILT)
