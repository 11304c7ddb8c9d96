"""Lines through pipes: none lost, none doubled, memory steady, and a reader may leave."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from helpers.command_line import command, environment

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests" / "runs" / "0.1.0" / "translation"
sys.path.insert(0, str(ROOT / "benchmarks"))
import soak  # noqa: E402  a script, not a package

TRANSLATE = command("translate", RUN, "--beam-size", 1, "--threads", 1)


def test_every_line_comes_back_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = soak.soak([*TRANSLATE, "--jsonl"], 600, 50)
    assert found["lines"] == 600
    assert len(found["mib"]) == 10 and found["most_mib"] > 0


def test_a_line_lost_would_be_noticed() -> None:
    loser = [sys.executable, "-c", "import sys; list(map(print, list(sys.stdin)[1:]))"]
    with pytest.raises(SystemExit, match="line 1 is"):
        soak.soak(loser, 10, 5)


def test_a_reader_that_leaves_ends_it(tmp_path: Path) -> None:
    """As `transduce translate RUN < FILE | head -1` does, with more lines to come than any buffer
    holds, from a writer that would go on for ever."""
    with (
        (tmp_path / "errors").open("wb") as errors,
        subprocess.Popen(
            TRANSLATE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,  # what is left to write is not for anybody
            env=environment(),
        ) as process,
    ):
        assert process.stdin is not None and process.stdout is not None

        def write() -> None:
            assert process.stdin is not None
            try:
                while True:
                    process.stdin.write(b"a good dog\n" * 1000)
            except (BrokenPipeError, ValueError):  # it has ended, or the test has
                pass

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        assert process.stdout.readline().endswith(b"\n")
        process.stdout.close()
        assert process.wait(timeout=120) == 128 + signal.SIGPIPE
        writer.join(timeout=60)
        assert not writer.is_alive()
    assert (tmp_path / "errors").read_bytes() == b""
