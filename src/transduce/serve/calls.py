"""Call: one request in progress, which ends with its deadline or its client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request


class Call:
    """Deadline and cancellation of a request.

    seconds: until the deadline.  `over` may be called from any thread, the rest only from the event
    loop's.
    """

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self.ended = False
        self._futures: set[asyncio.Future[Any]] = set()

    def over(self) -> bool:
        """True once no client waits for the answer."""
        return self.ended or time.monotonic() > self.deadline

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

    def end(self) -> None:
        """Cancel all that was attached."""
        self.ended = True
        for future in list(self._futures):
            future.cancel()


@asynccontextmanager
async def watched(request: Request, seconds: float) -> AsyncIterator[Call]:
    """The call of a request whose body has been read; it ends when the client has gone."""
    call = Call(seconds)

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
