"""Work on texts by other processes, with results in the order of the texts.

A worker is an interpreter of its own, not a fork: it holds neither the locks nor the connections
nor the threads of the process that started it, and it ends when that one does, however it does.
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
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

from transduce.errors import DataError

T = TypeVar("T")
R = TypeVar("R")

AHEAD = 2
"""Items under way for each worker, so that none waits for the next."""
MIN_ITEMS = 8
"""With fewer, workers would begin when all is done."""
MAX_WORKERS = 16
"""More would wait for the one process that reads."""
PROGRAM = """
import json, os, sys
sys.path[:] = json.loads(sys.argv[1])
from transduce.data.workers import serve
serve()
os._exit(0)
"""


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_workers(
    work: Callable[[T], R], items: Iterable[T], processes: int
) -> Generator[R, None, None]:
    """`work` of each item, in their order, made by so many processes.

    work: something that can be pickled, and depends on its item alone.  With one process, or with
    few items, all is done in this one.  Raises DataError where a worker has ended.
    """
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
    """One process, asked over its standard input and answering on its standard output."""

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
        """What its work makes of the item."""
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
            f"a process that encodes data has ended (code {self._process.wait()}); if memory is "
            "short, set training.threads = 1, and run it again: it goes on where it stopped"
        )


def serve() -> None:
    """What a worker does: read its work, then items, and write what it makes of each."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    with contextlib.suppress(EOFError, BrokenPipeError):
        work = pickle.load(questions)
        while True:
            pickle.dump(work(pickle.load(questions)), answers, pickle.HIGHEST_PROTOCOL)
            answers.flush()
