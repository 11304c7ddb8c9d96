"""Call: a request in progress, which ends with its deadline or its client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request

from transduce.errors import CancelledError
from transduce.serve.errors import ClientGoneError, RequestError, unavailable

P = ParamSpec("P")
T = TypeVar("T")

SHORTER_TEXTS = "send shorter texts"
SHORTER_DOCUMENT = "send a shorter document"
SHORTER_RECORDING = "send a shorter recording"


class Call:
    """Deadline and cancellation of a request.

    seconds: until the deadline.  remedy: of an answer that takes longer.  `over` and `check` may be
    called from any thread, the rest only from the event loop's.
    """

    def __init__(self, seconds: float, remedy: str = SHORTER_TEXTS) -> None:
        self._remedy = remedy
        self.deadline = time.monotonic() + seconds
        self.ended = False
        self._futures: set[asyncio.Future[Any]] = set()

    def over(self) -> bool:
        """True once no client waits for the answer."""
        return self.ended or time.monotonic() > self.deadline

    def check(self) -> None:
        """Raise CancelledError once no client waits for the answer: between two steps of long
        work."""
        if self.over():
            raise CancelledError("cancelled before completion")

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    def attach(self, future: asyncio.Future[Any]) -> None:
        """Cancel the future with the call."""
        if self.ended:
            future.cancel()
            return
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)

    async def in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Result of work in a thread, which calls `check` where it may take long.

        Raises as `outcome`.
        """
        return await self.outcome(asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs)))

    async def outcome(self, future: asyncio.Future[T]) -> T:
        """Result of a future, cancelled with the call.

        Raises RequestError: 503 at the deadline, 499 for a client gone.
        """
        self.attach(future)
        try:
            async with asyncio.timeout(self.remaining):
                return await future
        except (TimeoutError, CancelledError):
            raise self.given_up() from None
        except asyncio.CancelledError:
            if self.ended and future.cancelled():
                raise self.given_up() from None
            raise

    def given_up(self) -> RequestError:
        """End the call; its error: the client has gone, or the answer took too long."""
        gone, self.ended = self.ended, True
        if gone:
            return ClientGoneError()
        return unavailable(f"the answer takes too long; {self._remedy}", "timeout")

    def end(self) -> None:
        """Cancel all that was attached."""
        self.ended = True
        for future in list(self._futures):
            future.cancel()


@asynccontextmanager
async def watched(
    request: Request, seconds: float, remedy: str = SHORTER_TEXTS
) -> AsyncIterator[Call]:
    """The call of a request whose body has been read; it ends when the client has gone."""
    call = Call(seconds, remedy)

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        call.end()

    watcher = asyncio.create_task(watch())
    try:
        yield call
    finally:
        watcher.cancel()
        call.end()
