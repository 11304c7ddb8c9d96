"""Runs killed with SIGKILL at any moment end with the very weights of those left alone.

The real command in a process of its own, killed at random times, in random steps, and while each
kind of file is being written, then taken up with --resume until it is done.
"""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.kills import (
    FAMILIES,
    Process,
    Server,
    assert_same_run,
    check_whole,
    moments,
    write_family,
)

KILLS = 10
"""Of each family in the long test: 50 in all."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with contextlib.closing(Server()) as server:
        yield server


def train_whole(server: Server, place: Path, family: str) -> tuple[Path, float]:
    """A run never touched, and how long it took."""
    process = Process(server, write_family(place, family), place / "run")
    assert not process.killed_at(lambda: False)
    return process.run, time.monotonic() - process.begun


def kill_and_resume(server: Server, place: Path, family: str, kills: int, seed: int) -> None:
    whole, seconds = train_whole(server, place / "whole", family)
    plan = moments(random.Random(seed), seconds)
    done, runs = 0, 0
    while done < kills:
        runs += 1
        assert runs <= kills, "the moments come too late for this machine"
        recipe = write_family(place / f"run-{runs}", family)
        run, finished = recipe.parent / "run", False
        while not finished and done < kills:
            process = Process(server, recipe, run)
            finished = not process.killed_at(next(plan)(process))
            done += not finished
            check_whole(run)
        if not finished:
            assert not Process(server, recipe, run).killed_at(lambda: False)
        assert_same_run(run, whole)


def test_a_few_kills(server: Server, tmp_path: Path) -> None:
    kill_and_resume(server, tmp_path, "translation", 3, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # a busy machine takes minutes for ten kills of one family
@pytest.mark.parametrize("family", FAMILIES)
def test_many_kills(server: Server, family: str, tmp_path: Path) -> None:
    kill_and_resume(server, tmp_path, family, KILLS, seed=len(family))
