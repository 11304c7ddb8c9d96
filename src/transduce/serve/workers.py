"""Workers: several processes that answer at one address, and the process that keeps them alive.

All accept connections of one socket.  State that outlasts a request is in the memory of the
process that started them, which they ask over a local socket.
"""

import contextlib
import functools
import logging
import multiprocessing
import multiprocessing.connection
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from multiprocessing.connection import Connection
from multiprocessing.managers import BaseManager
from multiprocessing.process import BaseProcess

from transduce.errors import RunError, SettingError, TransduceError
from transduce.serve.metrics import Metrics
from transduce.serve.server import serve_forever
from transduce.serve.service import Service
from transduce.serve.settings import ServeSettings
from transduce.serve.storage import Glossaries, Stores

logger = logging.getLogger("transduce")

SIGNALS = (signal.SIGTERM, signal.SIGINT)
POST_SECONDS = 1.0
"""Seconds between two looks at the metrics of a worker."""
SHORT_LIFE, LONGEST_PAUSE = 10.0, 30.0
"""Seconds of a life after which the next one begins at once; else it begins after a pause, which
doubles up to a longest one."""
MOST_FAILED = 3
"""Starts of a worker in turn that fail before all are ready, until the server ends."""
ENDED = 0
"""Number of the workers that have ended, in the metrics."""

MakeService = Callable[[Stores, int, bool], Service]
"""Makes the service of a worker from the shared state, its number, and whether it replaces one."""


class _Manager(BaseManager):
    """Gives workers access to the state of a server."""


@dataclass
class _Worker:
    """A process and its end of a pipe.

    pause: seconds before its start.  n_failed: starts in turn before it that ended unready.
    """

    process: BaseProcess
    pipe: Connection
    pause: float
    n_failed: int
    began: float = field(default_factory=time.monotonic)
    is_ready: bool = False


class _Supervisor:
    """Starts workers, those again that die, and ends all.

    make: see `MakeService`.  listener: bound socket.
    """

    def __init__(self, make: MakeService, settings: ServeSettings, listener: socket.socket) -> None:
        self._make = make
        self._count = settings.workers
        self._listener = listener
        self._context = multiprocessing.get_context("spawn")
        self._stores = Stores(Glossaries(settings.glossaries))
        for part in fields(Stores):
            _Manager.register(part.name, functools.partial(getattr, self._stores, part.name))
        key = secrets.token_bytes(32)
        server = _Manager(authkey=key).get_server()
        self._access = server.address, key
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._workers: dict[int, _Worker] = {}
        self._is_up = False

    def run(self, ready: Callable[[], None]) -> signal.Signals:
        """Keep the workers alive until a signal, which is returned once they have ended.

        ready: called once all are ready.  Raises the error of a worker that cannot become ready,
        and RunError for one that ends without an error before all are, several times in turn.
        """
        self._stores.status.update(workers=self._count, ready=0)
        with _awaited_signals() as signals:
            try:
                for number in range(1, self._count + 1):
                    self._start(number)
                while not signals.poll():
                    self._look_after(signals)
                    if self._stores.status["ready"] == self._count and not self._is_up:
                        self._is_up = True
                        ready()
                first: signal.Signals = signals.recv()
                self._end(signals)
                return first
            finally:
                for worker in self._workers.values():
                    worker.process.kill()
                    worker.process.join()

    def _start(self, number: int, pause: float = 0.0, n_failed: int = 0) -> None:
        ours, theirs = self._context.Pipe()
        shared = self._make, self._listener, self._access
        process = self._context.Process(
            target=_serve, args=(*shared, theirs, number, pause, self._is_up)
        )
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the worker is ready for them
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        theirs.close()
        self._workers[number] = _Worker(process, ours, pause, n_failed)

    def _look_after(self, signals: Connection) -> None:
        """Wait for a signal, or for a worker that is ready, or has failed or died."""
        pipes = [signals, *(worker.pipe for worker in self._workers.values())]
        readable = multiprocessing.connection.wait(pipes)
        for number, worker in list(self._workers.items()):
            if worker.pipe not in readable:
                continue
            error = None
            try:
                error = worker.pipe.recv()
                is_ready = error is None
            except (EOFError, OSError):
                is_ready = False
            if not is_ready:
                self._replace(number, error)
            worker.is_ready = is_ready
        self._stores.status["ready"] = sum(worker.is_ready for worker in self._workers.values())

    def _replace(self, number: int, error: Exception | None) -> None:
        """Start a worker again.  error: that it reported, which is raised before all were ready."""
        if error is not None and not self._is_up:
            raise error
        worker = self._workers[number]
        worker.process.join()
        worker.pipe.close()
        cause = error or _cause_of_end(worker.process.exitcode)
        n_failed = 0 if worker.is_ready else worker.n_failed + 1
        if n_failed == MOST_FAILED and not self._is_up:
            raise RunError(
                f"worker {number} ended {n_failed} times before it was ready: {cause}; mend what "
                "the lines above name, or take fewer --workers if memory lacks"
            )
        lived = time.monotonic() - worker.began - worker.pause
        pause = 0.0 if lived > SHORT_LIFE else min(LONGEST_PAUSE, 2 * worker.pause or 1.0)
        delay = f"in {pause:.0f} seconds" if pause else "now"
        logger.warning(
            "worker %d (process %d) ended: %s; starting it again %s",
            number,
            worker.process.pid,
            cause,
            delay,
        )
        self._stores.documents.lose(number)
        total = Metrics()
        for state in (self._stores.metrics.pop(key, None) for key in (ENDED, number)):
            if state is not None:
                total.add(state, gauges=False)
        self._stores.metrics[ENDED] = total.state()
        self._start(number, pause, n_failed)

    def _end(self, signals: Connection) -> None:
        """Let running requests finish, until a second signal."""
        self._listener.close()
        for worker in self._workers.values():
            worker.process.terminate()
        waiting = {worker.process.sentinel for worker in self._workers.values()}
        while waiting and not signals.poll():
            waiting -= set(multiprocessing.connection.wait([signals, *waiting]))


def serve_by_workers(
    make: MakeService, settings: ServeSettings, listener: socket.socket, ready: Callable[[], None]
) -> None:
    """Serve by several processes until SIGTERM, which lets running requests finish.

    make: can be pickled.  settings: number of workers.  listener: bound socket.  ready: called once
    all workers are.  Raises KeyboardInterrupt after SIGINT, the error of a run that cannot be
    loaded, RunError for a worker that ends again and again at the start, and SettingError on
    Windows.
    """
    if not hasattr(signal, "pthread_sigmask"):
        raise SettingError("--workers needs Linux or macOS; remove it")
    if _Supervisor(make, settings, listener).run(ready) == signal.SIGINT:
        raise KeyboardInterrupt


@contextlib.contextmanager
def _awaited_signals() -> Iterator[Connection]:
    """A connection from which the signals that end the server can be read."""
    signals, write = multiprocessing.Pipe(duplex=False)
    before = {n: signal.signal(n, lambda number, _: write.send(number)) for n in SIGNALS}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cause_of_end(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _serve(
    make: MakeService,
    listener: socket.socket,
    access: tuple[str, bytes],
    pipe: Connection,
    number: int,
    pause: float,
    is_replacement: bool,
) -> None:
    """The process of a worker: reports None once it is ready, and an error that ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; SIGTERM follows
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    _in_background(_end_with_parent)
    time.sleep(pause)
    for part in fields(Stores):
        _Manager.register(part.name)
    manager = _Manager(*access)
    manager.connect()
    stores = Stores(**{part.name: getattr(manager, part.name)() for part in fields(Stores)})
    try:
        service = make(stores, number, is_replacement)
        _in_background(functools.partial(_post_metrics, service))
        serve_forever(service, listener, lambda: pipe.send(None), (signal.SIGTERM,))
    except (TransduceError, OSError, ImportError) as error:
        pipe.send(error)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _post_metrics(service: Service) -> None:
    with contextlib.suppress(EOFError, OSError):  # the parent has ended
        while True:
            time.sleep(POST_SECONDS)
            service.post_metrics()


def _in_background(work: Callable[[], object]) -> None:
    threading.Thread(target=work, daemon=True).start()
