"""Encoding by several processes, killed and taken up: the same bytes as by one that was let be."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import wait_for
from transduce.data import encoded as module
from transduce.data.encoded import FILES, EncodedPairs, Pair, encode_pairs
from transduce.data.pairs import FilterConfig
from transduce.data.ragged_rows import MANIFEST, PROGRESS, Side
from transduce.data.workers import in_workers
from transduce.errors import DataError
from transduce.text import (
    CharactersConfig,
    SubwordConfig,
    SymbolsConfig,
    Tokenizer,
    train_tokenizer,
)

N_PAIRS = 400
FILTERS = FilterConfig(max_length=20)

PREPARE = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from unit import test_data_preparation as test
from transduce.data import encoded

encoded.CHUNK_PAIRS, encoded.CHUNKS_KEPT = 10, 2

def pairs():
    for number, pair in enumerate(test.pairs()):
        if number == int(sys.argv[2]):
            print("here", flush=True)
            time.sleep(60)
        yield pair

test.prepare(Path(sys.argv[1]), pairs(), int(sys.argv[3]))
"""


def pairs() -> Iterator[Pair]:
    """With blank sides, duplicates near and far, and pairs that are too long."""
    chance = random.Random(3)
    words = ["red", "old", "tree", "house", "bird", "sees", "the", "small"]
    for i in range(N_PAIRS):
        size = 0 if i % 17 == 0 else chance.randint(1, 3 if i % 5 else 30)
        source = " ".join(chance.choices(words, k=size))
        yield source, source[::-1] or "x"


def tokenizer() -> Tokenizer:
    return train_tokenizer(CharactersConfig(), ["red old tree house bird sees the small"])


def prepare(directory: Path, some: Iterator[Pair], processes: int = 1) -> EncodedPairs:
    side = Side(tokenizer().encode_batch, tokenizer().size)
    return encode_pairs(some, side, side, FILTERS, directory, "1", processes=processes)


def content(directory: Path) -> dict[str, bytes]:
    assert {path.name for path in directory.iterdir()} == {*FILES, MANIFEST}
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_PAIRS", 10)
    monkeypatch.setattr(module, "CHUNKS_KEPT", 2)


@pytest.mark.system
def test_several_processes_write_what_one_writes(tmp_path: Path) -> None:
    data = prepare(tmp_path / "one", pairs())
    assert data.report.duplicate and data.report.empty and data.report.too_long
    assert prepare(tmp_path / "three", pairs(), 3).report == data.report
    assert content(tmp_path / "three") == content(tmp_path / "one")


@pytest.mark.system
@pytest.mark.parametrize(("at", "processes"), [(15, 1), (30, 1), (299, 1), (390, 2)])
def test_killed_and_taken_up(tmp_path: Path, at: int, processes: int) -> None:
    program = PREPARE.format(tests=str(Path(__file__).parents[1]))
    command = [sys.executable, "-c", program, str(tmp_path / "cache"), str(at), str(processes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        if processes > 1:  # what is under way must first be written
            wait_for(lambda: (tmp_path / ".cache.unfinished" / PROGRESS).exists())
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert EncodedPairs.open(tmp_path / "cache", "1") is None
    encoded: list[int] = []
    original = module._encode_chunk

    def counting(chunk: list[Pair], **sides: Any) -> Any:
        encoded.append(len(chunk))
        return original(chunk, **sides)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_encode_chunk", counting)
        prepare(tmp_path / "cache", pairs())
    assert sum(encoded) < N_PAIRS or at < 20
    prepare(tmp_path / "whole", pairs())
    assert content(tmp_path / "cache") == content(tmp_path / "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "whole"}


def interrupted(after: int) -> Iterator[Pair]:
    for number, pair in enumerate(pairs()):
        if number == after:
            raise KeyboardInterrupt
        yield pair


def test_interrupted_and_taken_up_again_and_again(tmp_path: Path) -> None:
    for after in (50, 120, 125, 333):
        with pytest.raises(KeyboardInterrupt):
            prepare(tmp_path / "cache", interrupted(after))
        assert not (tmp_path / "cache").exists()
    prepare(tmp_path / "cache", pairs())
    prepare(tmp_path / "whole", pairs())
    assert content(tmp_path / "cache") == content(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["shorter", "missing", "other", "no json"])
def test_what_does_not_fit_together_is_begun_anew(tmp_path: Path, damage: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        prepare(tmp_path / "cache", interrupted(200))
    left = tmp_path / ".cache.unfinished"
    match damage:
        case "shorter":
            (left / "target.offsets").write_bytes(b"")
        case "missing":
            (left / "seen").unlink()
        case "other":
            text = (left / PROGRESS).read_text()
            (left / PROGRESS).write_text(text.replace('"fingerprint": "1"', '"fingerprint": "2"'))
        case "no json":
            (left / PROGRESS).write_bytes(b"\xff{")
    prepare(tmp_path / "cache", pairs())
    prepare(tmp_path / "whole", pairs())
    assert content(tmp_path / "cache") == content(tmp_path / "whole")


@pytest.mark.parametrize("fails", [False, True])
def test_of_two_at_once_one_waits_for_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    """And opens what that one has made, or goes on where that one has failed."""
    caplog.set_level(logging.INFO, "transduce")
    began: list[str] = []
    result: list[EncodedPairs] = []

    def for_the_first() -> Iterator[Pair]:
        for number, pair in enumerate(pairs()):
            if number == 100:
                other.start()
                wait_for(lambda: "waiting for another process" in caplog.text)
            if number == 200 and fails:
                raise KeyboardInterrupt
            yield pair

    def for_the_other() -> Iterator[Pair]:
        began.append("other")
        yield from pairs()

    other = threading.Thread(
        target=lambda: result.append(prepare(tmp_path / "cache", for_the_other()))
    )
    with pytest.raises(KeyboardInterrupt) if fails else contextlib.nullcontext():
        prepare(tmp_path / "cache", for_the_first())
    other.join()
    assert began == (["other"] if fails else [])
    assert len(result[0]) == len(prepare(tmp_path / "whole", pairs()))
    assert content(tmp_path / "cache") == content(tmp_path / "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"cache", "whole"}


@pytest.mark.system
@pytest.mark.parametrize(
    "config", [SubwordConfig(size=280), CharactersConfig(), SymbolsConfig()], ids=lambda c: c.kind
)
def test_every_tokenizer_can_be_sent(config: Any) -> None:
    lines = ["red old tree house", "the small bird sees the tree"] * 5
    encode = train_tokenizer(config, lines).encode_batch
    result = list(in_workers(encode, ([f"{line} {i}"] for i, line in enumerate(lines)), 2))
    assert result == [encode([f"{line} {i}"]) for i, line in enumerate(lines)]


@pytest.mark.system
def test_a_worker_that_ends_is_one_line() -> None:
    with pytest.raises(DataError, match=r"^an encoding process exited with code 3; .*$"):
        list(in_workers(os._exit, [3] * 20, 2))


@pytest.mark.system
def test_workers_end_with_the_one_who_asks() -> None:
    answers = in_workers(str, range(1000), 2)
    assert next(answers) == "0"
    answers.close()
    with pytest.raises(ZeroDivisionError):
        list(in_workers(str, (1 // (30 - i) for i in range(100)), 2))
