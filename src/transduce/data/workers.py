"""Work ahead: texts in other processes, in their order, and the next items in a thread.

A worker is a separate interpreter, not a fork: it inherits no locks, connections or threads, and it
ends with its parent, however that ends.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from transduce.errors import DataError

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 2
"""Items queued for each worker, so that none waits."""
MIN_ITEMS = 8
"""With fewer items, the work would be done before workers have started."""
MAX_WORKERS = 16
"""More would wait for the single reading process."""
PROGRAM = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
from transduce.data.workers import serve_work
serve_work()
os._exit(0)
"""


def in_workers(
    work: Callable[[T], R], items: Iterable[T], processes: int
) -> Generator[R, None, None]:
    """Apply a picklable `work` to each item in this many processes, keeping the order; with few
    items, in this process.  Raises DataError if a worker has died."""
    rest = iter(items)
    first = list(itertools.islice(rest, MIN_ITEMS)) if processes > 1 else []
    everything = itertools.chain(first, rest)
    if len(first) < MIN_ITEMS or not sys.executable:
        yield from map(work, everything)
        return
    with contextlib.ExitStack() as stack:
        count = min(processes, MAX_WORKERS)
        idle: queue.SimpleQueue[_Worker[T, R]] = queue.SimpleQueue()
        for _ in range(count):
            idle.put(stack.enter_context(_Worker(work)))

        def ask(item: T) -> R:
            worker = idle.get()
            try:
                return worker.ask(item)
            finally:
                idle.put(worker)

        pool = concurrent.futures.ThreadPoolExecutor(count)
        stack.callback(pool.shutdown, cancel_futures=True)
        under_way: collections.deque[concurrent.futures.Future[R]] = collections.deque()
        for item in everything:
            under_way.append(pool.submit(ask, item))
            if len(under_way) > AHEAD * count:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


class _Worker(Generic[T, R]):
    def __init__(self, work: Callable[[T], R]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout
        self._send(work)

    def __enter__(self) -> _Worker[T, R]:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._questions.close()
        self._process.kill()
        self._process.wait()
        self._answers.close()

    def ask(self, item: T) -> R:
        self._send(item)
        try:
            answer: R = pickle.load(self._answers)
        except EOFError:
            raise self._ended() from None
        return answer

    def _send(self, value: Any) -> None:
        try:
            pickle.dump(value, self._questions, pickle.HIGHEST_PROTOCOL)
            self._questions.flush()
        except OSError:
            raise self._ended() from None

    def _ended(self) -> DataError:
        return DataError(
            f"an encoding process exited with code {self._process.wait()}; run the command again "
            "to resume, with training.threads = 1 if memory is short"
        )


def serve_work() -> None:
    """Main loop of a worker: read the work, then items, and write each result."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    with contextlib.suppress(EOFError, BrokenPipeError):
        work = pickle.load(questions)
        while True:
            pickle.dump(work(pickle.load(questions)), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()


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
