"""The fuzzer finds what it is there to find; what it found stays mended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.hostile import entrances

FUZZ = Path(__file__).parents[1] / "fuzz"
FALLEN = sorted(path for path in (FUZZ / "fallen").glob("*/*") if path.is_file())


@pytest.mark.parametrize("file", FALLEN, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_what_fell_once_stands(file: Path, tmp_path: Path) -> None:
    known = entrances(tmp_path)
    if file.parent.name not in known:
        pytest.skip(f"{file.parent.name} needs an extra that is missing")
    known[file.parent.name].enter(file.read_bytes(), tmp_path)


def test_every_seed_is_read(tmp_path: Path) -> None:
    known = entrances(tmp_path)
    assert len(known) > 15
    for entrance in known.values():
        for seed in entrance.seeds:
            entrance.enter(seed, tmp_path)


@pytest.mark.slow
def test_the_fuzzer_runs(tmp_path: Path) -> None:
    pytest.importorskip("atheris")
    program = [sys.executable, str(FUZZ / "fuzz.py"), "--one", "tsv", str(tmp_path), "-runs=300"]
    result = subprocess.run(program, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Done 300 runs" in result.stderr
