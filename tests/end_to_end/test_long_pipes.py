"""Lines through pipes: none lost, none doubled, and a reader may leave."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from pathlib import Path

from helpers.command_line import command, environment

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests" / "runs" / "0.1.0" / "translation"
TRANSLATE = command("translate", RUN, "--beam-size", 1, "--threads", 1)


def test_every_line_comes_back_in_its_place() -> None:
    sources = ["".join("abcdefghij"[int(digit)] for digit in str(i)) for i in range(600)]
    lines = "".join(json.dumps({"source": source}) + "\n" for source in sources)
    done = subprocess.run(
        [*TRANSLATE, "--jsonl"],
        input=lines,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
        check=True,
    )
    assert [json.loads(line)["source"] for line in done.stdout.splitlines()] == sources


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
