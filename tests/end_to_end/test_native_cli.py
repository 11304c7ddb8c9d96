"""`--engine native` and `--engine auto` from the command line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done, transduce
from helpers.native import needs_native
from transduce.engine import library

Here = Callable[..., Done]
ENGINE = ["--engine", "native"]
LINES = ["abc", "", "hgfed", "aabb", "   ", "abcdefgh", "cab"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"{line}\n" for line in LINES * 3), encoding="utf-8")
    return path


@needs_native
def test_a_pipe_gives_the_same_lines(run: Path) -> None:
    stdin = "\n".join(LINES).encode()
    own = transduce("translate", run, "--device", "cpu", stdin=stdin)
    for engine in ("native", "auto"):
        other = transduce("translate", run, "--engine", engine, "--threads", 2, stdin=stdin)
        assert (other.code, other.lines) == (0, own.lines), other.err


@needs_native
def test_evaluate_and_info(here: Here, run: Path) -> None:
    own = here("evaluate", run, "--json", "--device", "cpu")
    other = here("evaluate", run, "--json", *ENGINE)
    assert json.loads(other.out) == json.loads(own.out)
    facts = json.loads(here("info", run, "--json").out)
    assert facts["engine"] == "native" and facts["native_engine"].startswith("yes, with ")


def test_verbs_and_devices_without_it(here: Here, run: Path, file: Path) -> None:
    message = here("score", run, "--source", file, "--target", file, *ENGINE)
    assert message.code == 2 and "`transduce score` does not support --engine" in message.complaint
    message = here("translate", run, file, *ENGINE, "--device", "cuda")
    assert message.code == 2 and "engine 'native' runs on a CPU only" in message.complaint


def test_without_a_compiler_auto_takes_pytorch(
    here: Here, run: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "which", lambda *arguments, **named: None)
    library._loaded.cache_clear()
    own = here("translate", run, file)
    result = here("translate", run, file, "--engine", "auto")
    assert (result.code, result.lines) == (0, own.lines)
    assert "slower: the native engine needs a C++ compiler once" in own.err  # on the first use
    assert "compiler" not in result.err
    refused = here("translate", run, file, *ENGINE)
    assert refused.code == 2 and "needs a C++ compiler once" in refused.complaint
    facts = json.loads(here("info", run, "--json").out)
    assert facts["native_engine"].startswith("no: the native engine needs a C++ compiler")
