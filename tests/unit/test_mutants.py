"""The script that injects faults: what it refuses, what it counts, and that it changes no tree."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[1] / "mutants" / "run.py"
posix = pytest.mark.skipif(sys.platform == "win32", reason="limits of time need POSIX")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
SOURCE = "def bounded(x):\n    return min(max(x, 0), 9)\n"
TEST = "from a import bounded\n\ndef test_low():\n    assert bounded(-1) == 0\n"


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("mutants_run", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def write_tree(root: Path, *rows: tuple[str, str], test: str = "test_a.py") -> Path:
    for name, text in (("src/a.py", SOURCE), ("tests/deep/test_a.py", TEST)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "list.toml").write_text(
        "".join(
            f"[[mutant]]\narea = 'a'\ntests = ['{test}']\nold = '''\n{old}\n'''\nnew = '{new}'\n"
            for old, new in rows
        )
    )
    return root


@posix
def test_a_text_that_is_gone_or_there_twice_is_named(script: Any, tmp_path: Path) -> None:
    root = write_tree(tmp_path, ("max(x, 0)", "x"), ("max(x, 1)", "x"), ("x", "y"))
    with pytest.raises(script.ListError) as caught:
        script.read_list(root, root / "list.toml")
    lines = str(caught.value).splitlines()
    assert lines == ["a: occurs 0 times in src: 'max(x, 1)'", "a: occurs 3 times in src: 'x'"]
    root = write_tree(tmp_path, ("max(x, 0)", "x"), test="test_b.py::test_low")
    with pytest.raises(script.ListError, match=r"no test file test_b\.py"):
        script.read_list(root, root / "list.toml")


@posix
def test_the_list_fits_the_sources(script: Any) -> None:
    assert len(script.read_list(script.ROOT, script.LIST)) >= 100


@posix
@needs_git
@pytest.mark.system
def test_seen_and_unseen_faults(script: Any, tmp_path: Path) -> None:
    root = write_tree(tmp_path / "tree", ("max(x, 0)", "x"), (", 9)", ", 8)"), ("min(", "mi("))
    (root / "conftest.py").write_text("")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    mutants = script.read_list(root, root / "list.toml")
    assert [str(mutant.file) for mutant in mutants] == ["src/a.py"] * 3
    assert mutants[0].tests == ("tests/deep/test_a.py",)
    trees = script.Trees(root, tmp_path / "copies", 1)
    trees.check(mutants)
    assert [trees.outcome(mutant)[0] for mutant in mutants] == ["failed", "passed", "failed"]
    assert (root / "src" / "a.py").read_text() == SOURCE
    assert (tmp_path / "copies" / "0" / "src" / "a.py").read_text() == SOURCE
    (tmp_path / "copies" / "0" / "tests" / "deep" / "test_a.py").write_text(
        "def test_a():\n    1/0"
    )
    with pytest.raises(script.ListError, match="without a fault the tests failed"):
        trees.check(mutants)
