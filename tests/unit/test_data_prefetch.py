from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.workers import prefetch


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def close(items: Iterator[int]) -> None:
    items.close()  # type: ignore[attr-defined]


@given(st.lists(st.integers()), st.integers(1, 5))
def test_same_items_in_the_same_order(items: list[int], depth: int) -> None:
    assert list(prefetch(items, depth)) == items
    assert not workers()


def test_errors_come_in_their_turn() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("broken")

    items = prefetch(failing())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(KeyError, match="broken"):
        next(items)
    assert not workers()


def test_an_iterable_that_cannot_be_iterated() -> None:
    with pytest.raises(TypeError):
        list(prefetch(cast("Iterator[int]", 3)))


def test_stopping_early_ends_the_thread_and_closes_the_iterator() -> None:
    closed_in = []

    def endless() -> Iterator[int]:
        try:
            i = 0
            while True:
                yield i
                i += 1
        finally:
            closed_in.append(threading.current_thread().name)

    items = prefetch(endless(), depth=2)
    assert next(items) == 0
    assert len(workers()) == 1
    assert workers()[0].daemon
    close(items)
    assert not workers()
    assert closed_in == ["prefetch"]


def test_an_abandoned_loop_leaves_no_thread() -> None:
    def use() -> None:
        for item in prefetch(iter(range(10**9))):
            if item == 3:
                raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        use()
    assert not workers()


def test_never_started() -> None:
    close(prefetch(iter(range(3))))
    assert not workers()


def test_at_most_depth_items_ahead() -> None:
    made: list[int] = []
    four = threading.Event()

    def counted() -> Iterator[int]:
        for i in range(100):
            made.append(i)
            if i == 3:
                four.set()
            yield i

    items = prefetch(counted(), depth=3)
    next(items)
    # One was taken, so three more may be made: the worker does get there, and no further.
    assert four.wait(10)
    assert len(made) == 4
    close(items)
    assert len(made) == 4
