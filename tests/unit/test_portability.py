"""Systems other than Linux, simulated: modules, signals and functions that they do not have."""

import ast
import os
import signal
from functools import cache
from pathlib import Path

import pytest

from transduce.cli import main as command_line
from transduce.support.work import available_cores
from transduce.training import distributed
from transduce.training.weights import flush_directory

PACKAGE = Path(__file__).parents[2] / "src" / "transduce"
POSIX_MODULES = {"fcntl", "grp", "pwd", "resource", "termios", "tty", "syslog", "posix"}
POSIX_NAMES = {
    *("chown", "fork", "geteuid", "getuid", "killpg", "mkfifo", "setsid", "sysconf", "uname"),
    *("sched_getaffinity", "O_DIRECTORY", "O_NOFOLLOW", "SIGHUP", "SIGKILL", "SIGPIPE"),
}
GUARDED = {
    "support/work.py": {"sched_getaffinity"},  # where there is one
    "engine/build.py": {"getuid"},  # no instruction set is known for Windows
    "experiments/trials.py": {"setsid"},  # where there is one
}


@cache
def trees() -> list[tuple[str, ast.Module]]:
    return [
        (path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def test_no_module_needs_a_posix_module_to_be_imported() -> None:
    found = [
        f"{name} imports {alias.name}"
        for name, tree in trees()
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if (getattr(node, "module", None) or alias.name) in POSIX_MODULES
    ]
    assert found == []


def test_posix_functions_are_used_only_behind_a_guard() -> None:
    used: dict[str, set[str]] = {}
    for name, tree in trees():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in ("os", "signal")
                and node.attr in POSIX_NAMES
            ):
                used.setdefault(name, set()).add(node.attr)
    assert used == GUARDED


def test_text_files_are_written_with_line_feeds_everywhere() -> None:
    """Windows would write carriage returns as well: files of one run would differ by machine."""
    missing = []
    for name, tree in trees():
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            mode = [a.value for a in node.args[:1] if isinstance(a, ast.Constant)]
            opens = node.func.attr == "open" and mode in (["w"], ["a"], ["x"], ["a+"], ["w+"])
            writes = node.func.attr == "write_text" and any(
                word.arg == "encoding" for word in node.keywords
            )
            if (opens or writes) and not any(word.arg == "newline" for word in node.keywords):
                missing.append(f"{name}:{node.lineno}")
    assert missing == []


def test_cores_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert available_cores() == os.cpu_count()


def test_a_closed_pipe_without_its_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(signal, "SIGPIPE", raising=False)

    def closed(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(command_line, "build_app", closed)
    assert command_line.main(["info"]) == 141


def test_the_name_of_a_job_without_uname(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    monkeypatch.delattr(os, "uname", raising=False)
    assert distributed.job_name().endswith(f" {os.getppid()}")


def test_directories_are_flushed_on_posix_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transduce.training.weights.os.name", "nt")
    flush_directory(tmp_path / "no such directory")
