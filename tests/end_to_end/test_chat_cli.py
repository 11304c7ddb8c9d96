"""A conversation from recipe to reply, by the command line alone."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from helpers.command_line import Done, command, environment, transduce
from helpers.native import needs_native
from helpers.served_runs import dialogue_run


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dialogue_run(tmp_path_factory.mktemp("talks") / "talk")


def test_one_reply_a_line_through_a_pipe(talker: Path) -> None:
    talk = "hi\r\n你好\n\n/history\none\n/reset\n/history\n/what\na b\n/exit\nhi\n"
    done = transduce("chat", talker, "--seed", 1, stdin=talk.encode())
    assert done.code == 0
    assert done.lines == ["ho", "您好", "", "two", "c d"]
    shown = done.err.splitlines()
    assert shown[:4] == ["user: hi", "model: ho", "user: 你好", "model: 您好"]
    assert shown[4:] == ["warning: unknown command /what; available: /reset, /history, /exit"]


@needs_native
def test_the_native_engine_replies_the_same(talker: Path) -> None:
    talk = "hi\n你好\none\n" + "a b\n" * 9  # beyond the context
    done = transduce("chat", talker, "--engine", "native", "--beam-size", 1, stdin=talk.encode())
    assert done.code == 0, done.err
    assert done.lines[:3] == ["ho", "您好", "two"] and len(done.lines) == 12


def test_what_has_no_room_is_said_once(talker: Path) -> None:
    done = transduce("chat", talker, stdin=b"one\n" * 20)
    assert len(done.lines) == 20 and done.code == 0
    assert done.err.count("the conversation exceeds the maximum length") == 1


def test_predict_and_evaluate(talker: Path, here: Callable[..., Done]) -> None:
    record = {"id": 3, "history": "hi\nho\n你好"}
    line = json.dumps(record, ensure_ascii=False).encode()
    (answered,) = transduce("predict", talker, "--jsonl", stdin=line).lines
    result = json.loads(answered)
    assert result["reply"] == "您好" and result["id"] == 3 and result["log_prob"] < 0
    scores = json.loads(here("evaluate", talker, "--json").out)
    assert 1 < scores["perplexity"] < 1.5 and scores["items"] > 10
    assert here("generate", talker, "hi").out == b"ho\n"


def test_mistakes(talker: Path, run: Path, tmp_path: Path, here: Callable[..., Done]) -> None:
    assert "min_p" in here("chat", talker, "--min-p", 2).complaint
    assert "not a directory" in here("chat", tmp_path / "none").complaint
    assert "task 'translation', not 'dialogue'" in here("chat", run).complaint


@pytest.fixture
def terminal() -> Iterator[tuple[int, IO[bytes]]]:
    """A terminal to type on, by its two ends."""
    master, slave = pty.openpty()
    with os.fdopen(slave, "rb", closefd=True) as end:
        yield master, end
    os.close(master)


def told(process: subprocess.Popen[bytes], end: bytes) -> bytes:
    """What is said on stderr up to, and with, this."""
    assert process.stderr is not None
    result = b""
    while not result.endswith(end):
        byte = process.stderr.read(1)
        assert byte, result
        result += byte
    return result


def heeding_interrupts() -> None:
    """What a shell runs in the background, as these tests may be, is told to pass over them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_a_terminal(talker: Path, terminal: tuple[int, IO[bytes]]) -> None:
    """Ctrl-C ends a reply that would not end, then only tells how to leave; Ctrl-D leaves."""
    master, slave = terminal
    endless = "--min-length", 1_000_000, "--max-tokens", 1_000_000
    with subprocess.Popen(
        command("chat", talker, *endless),
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**environment(), "TRANSDUCE_LIMIT_OUTPUT": "1000000"},
        bufsize=0,
        preexec_fn=heeding_interrupts,
    ) as process:
        assert process.stdout is not None
        assert b"/reset to clear" in told(process, b"> ")
        os.write(master, b"hi\n")
        assert process.stdout.read(2)
        process.send_signal(signal.SIGINT)
        told(process, b"> ")
        process.send_signal(signal.SIGINT)
        assert b"/exit or Ctrl-D quits" in told(process, b"> ")
        os.write(master, b"/history\n")
        shown = told(process, b"> ").decode()
        assert shown.startswith("user: hi\nmodel: ")
        os.write(master, b"\x04")
        rest = process.stdout.read()
        assert process.wait(60) == 0
        assert rest.endswith(b"\n") and rest.count(b"\n") == 1
        assert process.stderr is not None and process.stderr.read() == b"\n"
