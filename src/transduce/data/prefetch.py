"""Preparation of the next items in a thread while the present one is in use."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

CLOSING_SECONDS = 10.0


@dataclass(frozen=True)
class _End:
    """Marks the end of the iterator, or its failure."""

    error: BaseException | None = None


class _Worker(Generic[T]):
    """Runs an iterator in a daemon thread, at most `depth` items ahead."""

    def __init__(self, items: Iterable[T], depth: int) -> None:
        self.ready: queue.SimpleQueue[T | _End] = queue.SimpleQueue()
        self.room = threading.Semaphore(depth)
        self._items = items
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the current item."""
        self._stopped = True
        self.room.release()
        self._thread.join(CLOSING_SECONDS)

    def _run(self) -> None:
        try:
            iterator = iter(self._items)
            try:
                self._fill(iterator)
            finally:
                # A generator's own clean-up belongs in the thread that ran it.
                close = getattr(iterator, "close", None)
                if close is not None:
                    close()
        except BaseException as error:
            self.ready.put(_End(error))
        else:
            self.ready.put(_End())

    def _fill(self, iterator: Iterator[T]) -> None:
        while True:
            self.room.acquire()
            if self._stopped:
                return
            try:
                item = next(iterator)
            except StopIteration:
                return
            self.ready.put(item)
            del item  # or a batch would stay in memory while waiting for room


def prefetch(iterator: Iterable[T], depth: int = 8) -> Generator[T, None, None]:
    """Items of an iterator in order, prepared in one thread up to `depth` ahead.

    The thread starts with the first request.  Errors of the iterator are raised here in turn.  If
    the consumer stops early, the thread ends and the iterator is closed.
    """
    assert depth >= 1, depth
    worker = _Worker(iterator, depth)
    try:
        while True:
            item = worker.ready.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            worker.room.release()
            yield item
    finally:
        worker.stop()
