"""Arrays that the ranks of a machine share."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from transduce.data import per_machine
from transduce.data.batches import RankDataState, TokenBatches
from transduce.data.per_machine import once_per_machine


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield tmp_path / "transduce" / "shared"


def test_one_rank_makes_the_arrays_and_all_map_them(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def make() -> list[np.ndarray]:
        made.append(True)
        return [np.arange(5), np.zeros(0, np.int32), np.ones(3)]

    alone = once_per_machine(lambda: 1, make)
    assert len(made) == 1 and not cache.exists()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    shared = [once_per_machine(lambda: 1, make) for _ in range(3)]
    assert len(made) == 2
    for arrays in shared:
        for array, own in zip(arrays, alone, strict=True):
            assert np.array_equal(array, own) and array.dtype == own.dtype
    assert isinstance(shared[0][0].base, np.memmap)
    assert list(cache.iterdir()) == []  # the last of the three has removed them
    once_per_machine(lambda: 1, make)
    once_per_machine(lambda: 2, make)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    once_per_machine(lambda: 1, make)
    assert len(made) == 5 and len(list(cache.iterdir())) == 3
    late = time.time() - 2 * per_machine.LEFTOVER
    for left in cache.iterdir():
        os.utime(left, (late, late))
    once_per_machine(lambda: 3, make)
    assert len(list(cache.iterdir())) == 1


def test_a_leftover_that_another_job_deletes_meanwhile_is_passed_over(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    iterdir = Path.iterdir
    gone = [cache / "gone"]
    monkeypatch.setattr(Path, "iterdir", lambda path: itertools.chain(gone, iterdir(path)))
    (array,) = once_per_machine(lambda: 1, lambda: [np.arange(3)])
    assert array.tolist() == [0, 1, 2]


def test_ranks_that_share_an_order_have_the_batches_of_one_process(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = np.random.default_rng(1)
    widths = chance.integers(1, 30, 500), chance.integers(1, 30, 500)

    def rows(rank: int, world: int) -> list[list[int]]:
        batches = TokenBatches(widths, lambda rows: rows.tolist(), 64, 3)
        state = RankDataState(1, 5, rank, world)
        return [rows for rows, _ in itertools.islice(batches.iterate(state), 600 // world)]

    expected = rows(0, 1)  # beyond the end of the epoch
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    first, second = rows(0, 2), rows(1, 2)
    assert [first, second] == [expected[::2], expected[1::2]]
