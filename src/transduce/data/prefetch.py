"""Preparation of the next items in a thread while another is in use."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

CLOSING_SECONDS = 10.0


@dataclass(frozen=True)
class _End:
    """Marks the end of the iterator, or its failure."""

    error: BaseException | None = None


def prefetch(items: Iterable[T], depth: int = 8) -> Generator[T, None, None]:
    """Items in order, prepared in a daemon thread up to `depth` ahead; errors are raised here in
    turn.  If the consumer stops early, the thread closes the iterator after its current item."""
    assert depth >= 1, depth
    ready: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
    room, stopped = threading.Semaphore(depth), threading.Event()

    def run() -> None:
        end = _End()
        try:
            with contextlib.closing(_each(items)) as each:
                room.acquire()
                for prepared in each:
                    ready.put(prepared)
                    del prepared  # or a batch would stay in memory while waiting for room
                    room.acquire()
                    if stopped.is_set():
                        break
        except BaseException as error:
            end = _End(error)
        ready.put(end)

    thread = threading.Thread(target=run, name="prefetch", daemon=True)
    thread.start()
    try:
        while not isinstance(prepared := ready.get(), _End):
            room.release()
            yield prepared
        if prepared.error is not None:
            raise prepared.error
    finally:
        stopped.set()
        room.release()
        thread.join(CLOSING_SECONDS)


def _each(items: Iterable[T]) -> Generator[T, None, None]:
    """The items; closing it closes their iterator, in the thread that ran it."""
    yield from items
