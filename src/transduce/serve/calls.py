"""Call: a request in progress, with its deadline, its bounds and its errors."""

import asyncio
import errno
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request

from transduce.decoding.options import DecodingOptions, facts_of_options
from transduce.errors import CancelledError, TransduceError, is_out_of_memory

logger = logging.getLogger("transduce")

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of errors of writing."""


class RequestError(Exception):
    """An error that is answered with a status and one line.

    kind: a short name for dialects with error codes, such as "invalid_request".
    """

    def __init__(
        self,
        status: int,
        message: str,
        kind: str = "invalid_request",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.headers = dict(headers or {})

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle for another process."""
        return type(self), (self.status, self.message, self.kind, self.headers)


class ClientGoneError(RequestError):
    """The client has closed its connection; no answer arrives."""

    def __init__(self) -> None:
        super().__init__(499, "client closed the connection", "client_gone")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle for another process."""
        return type(self), ()


def invalid(message: str, kind: str = "invalid_request") -> RequestError:
    """Status 400."""
    return RequestError(400, message, kind)


def busy(message: str) -> RequestError:
    """Status 429, to be repeated soon."""
    return RequestError(429, f"Slowdown: {message}", "rate_limit", {"Retry-After": "1"})


def fault_of(error: Exception, name: str) -> RequestError:
    """The answer to an error, which is logged by a name if it is the server's fault."""
    if isinstance(error, RequestError):
        return error
    fault = fault_at(name, place_of(error))
    if is_out_of_memory(error):
        return unavailable("out of memory; send less at a time", "out_of_memory")
    if isinstance(error, OSError) and error.errno in FULL:
        return RequestError(507, "the server has no space left", "full")
    return fault


def fault_at(name: str, location: str) -> RequestError:
    """The answer to a fault at a place, logged by a name."""
    logger.error("%s: %s", name, location)
    return RequestError(500, "internal error", "internal")


def log_fault(name: str, error: BaseException) -> None:
    """Log type and place of a fault."""
    logger.error("%s: %s", name, place_of(error))


def place_of(error: BaseException) -> str:
    """Type and place of an error, without its message, which may hold a text of a user."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "unknown place"
    return f"{type(error).__name__} at {where}"


def unavailable(message: str, kind: str = "unavailable") -> RequestError:
    """Status 503, to be repeated later."""
    return RequestError(503, message, kind, {"Retry-After": "5"})


def bounded(recipe: DecodingOptions | None, request: Mapping[str, Any]) -> DecodingOptions | None:
    """The recipe's options, overridden by a request.  Raises RequestError for invalid options."""
    if not request:
        return recipe
    if recipe is None:
        raise invalid("this model does not decode; remove the options")
    facts = facts_of_options()
    for name, setting in request.items():
        most = facts[name].client if name in facts else True
        if most is False:
            raise invalid(f"option {name} cannot be chosen by a request; remove it")
        if isinstance(setting, list | tuple) and most is not True and len(setting) > most:
            raise invalid(f"option {name} has {len(setting)} entries; at most {most}")
    try:
        options = recipe.with_settings(request)
    except TransduceError as error:
        raise invalid(str(error)) from None
    for name, fact in facts.items():
        setting, most = getattr(options, name), fact.client
        is_bounded = isinstance(setting, int | float) and not isinstance(most, bool)
        if is_bounded and setting > max(most, getattr(recipe, name)):
            raise invalid(f"option {name} = {setting} exceeds {most}")
    return options


P = ParamSpec("P")
T = TypeVar("T")

MOST_AT_ONCE = 500
"""Characters that the event loop works on by itself."""
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
        self._seconds = seconds
        self._limits: set[asyncio.Timeout] = set()
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

    def go_on(self) -> None:
        """Count the time to the deadline from now, as a part of a long answer has come."""
        self.deadline = time.monotonic() + self._seconds
        for limit in self._limits:
            limit.reschedule(asyncio.get_running_loop().time() + self._seconds)

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

    async def on_texts(
        self, texts: Iterable[str], work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Result of work on some texts: on short ones at once, for which a thread costs more.

        Raises as `outcome`.
        """
        if sum(map(len, texts)) > MOST_AT_ONCE:
            return await self.in_thread(work, *args, **kwargs)
        try:
            return work(*args, **kwargs)
        except CancelledError:
            raise self.given_up() from None

    async def outcome(self, future: asyncio.Future[T]) -> T:
        """Result of a future, cancelled with the call.

        Raises RequestError: 503 at the deadline, 499 for a client gone.
        """
        self.attach(future)
        try:
            async with asyncio.timeout(self.remaining) as limit:
                self._limits.add(limit)
                try:
                    return await future
                finally:
                    self._limits.discard(limit)
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
    """The call of a request whose body has been read; it ends when the client has gone.

    seconds: limit of the call.  remedy: for the message when it is exceeded.
    """
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
