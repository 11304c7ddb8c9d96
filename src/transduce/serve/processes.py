"""Processes for documents of strangers: their end is certain, and their memory limited.

An XML parser or a regular expression in C may hold the interpreter for longer than any check
between two steps can end, and the event loop with it.  A process is killed instead: with its call.
"""

import asyncio
import contextlib
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, Literal, TypeVar

from transduce.errors import TransduceError
from transduce.localise.pivoting import Round, Rounds
from transduce.localise.translate import Answer
from transduce.serve.calls import Call, RequestError, fault_at, place_of

T = TypeVar("T")

MOST_PROCESSES = 4
"""Documents in work at a time; others wait."""
BASE_BYTES, EXPANSION = 64_000_000, 150
"""Memory of a process: of itself, and for each byte of its document; real ones take up to 95."""
MOST_RESERVED_BYTES = 700_000_000
"""Memory of all processes."""
NICENESS = 10
"""Documents give way to texts."""
POLL = 0.05
"""Seconds between two looks at a call that may have ended."""
PRELOADED = "transduce.localise.pivoting"

Kind = Literal["round", "result", "error", "memory", "fault"]


class DocumentProcesses:
    """Work on documents, each in a process of its own, which ends with its call."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOADED])
        self._threads = ThreadPoolExecutor(MOST_PROCESSES, "serve-document")
        self._changed = threading.Condition()
        self.reserved = 0

    def close(self) -> None:
        """Refuse further documents."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(
        self,
        call: Call,
        size: int,
        answer: Callable[[Round], Awaitable[list[Answer]]],
        work: Callable[..., Rounds[T]],
        *args: Any,
    ) -> T:
        """Result of work in a process, by the answers to its rounds.

        size: bytes of the document.  work: a function of a module.  Raises its TransduceError, and
        RequestError: as `answer`; 503 at the deadline, 499 for a client gone, 413 for too much
        memory, 500 for a fault.
        """
        loop = asyncio.get_running_loop()

        def ask(orders: Round) -> list[Answer]:
            return asyncio.run_coroutine_threadsafe(_awaited(answer(orders)), loop).result()

        try:
            return await call.outcome(
                loop.run_in_executor(self._threads, self._talk, call, size, ask, work, args)
            )
        except BaseException:
            call.end()
            raise

    def _talk(
        self,
        call: Call,
        size: int,
        ask: Callable[[Round], list[Answer]],
        work: Callable[..., Rounds[T]],
        args: Sequence[Any],
    ) -> Any:
        """The result of a process, started and killed here, in a thread."""
        n_bytes = BASE_BYTES + EXPANSION * size
        with self._memory(call, n_bytes), contextlib.ExitStack() as stack:
            ours, theirs = map(stack.enter_context, self._context.Pipe())
            limits = (n_bytes, math.ceil(call.remaining) + 1)
            process = self._context.Process(target=_work, args=(theirs, limits, work, args))
            process.daemon = True
            with self._changed:
                process.start()
            theirs.close()
            try:
                while True:
                    kind, content = _received(ours, call)
                    if kind != "round":
                        return _outcome(kind, content)
                    ours.send(ask(content))
            finally:
                process.kill()
                process.join()

    @contextlib.contextmanager
    def _memory(self, call: Call, n_bytes: int) -> Iterator[None]:
        """Reserve memory, once it is free."""
        with self._changed:
            while self.reserved and self.reserved + n_bytes > MOST_RESERVED_BYTES:
                call.check()
                self._changed.wait(POLL)
            self.reserved += n_bytes
        try:
            call.check()
            yield
        finally:
            with self._changed:
                self.reserved -= n_bytes
                self._changed.notify_all()


async def _awaited(answers: Awaitable[T]) -> T:
    return await answers


def _received(connection: Connection, call: Call) -> tuple[Kind, Any]:
    try:
        while not connection.poll(POLL):
            call.check()
        message: tuple[Kind, Any] = connection.recv()
        return message
    except (EOFError, ConnectionResetError):  # ended by the system
        return "memory", None


def _outcome(kind: Kind, content: Any) -> Any:
    match kind:
        case "error":
            raise content
        case "memory":
            raise RequestError(
                413, "the document takes too much memory; send it in parts", "too_large"
            )
        case "fault":
            raise fault_at("a document", content)
    return content


def _work(
    connection: Connection,
    limits: tuple[int, int],
    work: Callable[..., Rounds[Any]],
    args: Sequence[Any],
) -> None:
    """The process: its rounds, then its result or error.  limits: bytes, and seconds of a
    processor, in case that nobody is there to kill it."""
    import resource  # where there are processes with limits

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the server ends it
    os.nice(NICENESS)
    for limit, most in zip((resource.RLIMIT_DATA, resource.RLIMIT_CPU), limits, strict=True):
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS knows no limit of data
            resource.setrlimit(limit, (most, hard))
    message: tuple[Kind, Any]
    try:
        rounds = work(*args)
        try:
            connection.send(("round", next(rounds)))
            while True:
                connection.send(("round", rounds.send(connection.recv())))
        except StopIteration as stop:
            message = "result", stop.value
    except TransduceError as error:
        message = "error", error
    except MemoryError:
        message = "memory", None
    except EOFError:  # the server has gone
        return
    except Exception as error:
        message = "fault", place_of(error)
    connection.send(message)
