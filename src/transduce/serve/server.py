"""The process: application of all dialects, socket, signals, end."""

import asyncio
import contextlib
import logging
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import FrameType
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

import transduce
from transduce.errors import SettingError
from transduce.serve.calls import RequestError, fault_of, log_fault
from transduce.serve.dialects import DIALECTS
from transduce.serve.dialects.dialect import Dialect, Endpoint
from transduce.serve.requests import Fields, read_fields
from transduce.serve.service import Service
from transduce.serve.settings import ServeSettings
from transduce.serve.translator import HEADER as UNTRANSLATED

logger = logging.getLogger("transduce")

IGNORED = "Transduce-Ignored"
"""Header of an answer: names of the fields of the request that have no effect."""
MOST_HEADERS = 200
"""Header fields of a request."""


def build_application(service: Service) -> Starlette:
    """The application over a service; it starts and closes the service."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(_log_unhandled)
        service.start()
        if service.is_replacement:  # the other workers answer until it can
            await service.loaded_all()
        yield
        service.close()

    prefix = service.settings.url_prefix
    dialects = [kind(service) for kind in DIALECTS]
    endpoints = [(dialect, endpoint) for dialect in dialects for endpoint in dialect.endpoints()]
    description = openapi(endpoints, prefix)

    async def spec(request: Request, fields: Fields) -> Response:
        return JSONResponse(description)

    routes = [
        Route(endpoint.path, _counted(service, dialect, endpoint), methods=endpoint.methods)
        for dialect, endpoint in [*endpoints, (dialects[-1], Endpoint("/spec", spec, public=True))]
    ]

    health = [route for route in routes if route.path.startswith("/health/")]  # for probes

    async def router_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path.removeprefix(prefix)
        dialect = next(d for d in dialects if path.startswith(d.prefixes))
        content = dialect.error(error.status_code, str(error.detail), "http")
        return JSONResponse(content, error.status_code, headers=dict(error.headers or {}))

    async def fault(request: Request, error: Exception) -> Response:
        return await router_error(request, HTTPException(500, "internal error"))

    cors = Middleware(
        CORSMiddleware,
        allow_origins=["*"],
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=[UNTRANSLATED, IGNORED],
    )
    return Starlette(
        routes=[Mount(prefix, routes=routes), *health] if prefix else routes,
        exception_handlers={HTTPException: router_error, Exception: fault},
        middleware=[Middleware(_WholeBody), cors],
        lifespan=lifespan,
    )


UNREAD, UNREAD_PART = 30.0, 5.0
"""Seconds for the rest of a body behind an early answer, and for a part of it."""


class _WholeBody:
    """Reads the rest of a body that was answered early, by a refusal, before the answer ends.

    A connection that closes on bytes not read is reset, and the client loses the answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request as the application does."""
        # a client that waits for 100 Continue sends no body after another answer
        is_unread = scope["type"] == "http" and b"expect" not in dict(scope["headers"])

        async def received() -> Message:
            nonlocal is_unread
            message = await receive()
            is_unread = is_unread and message.get("more_body", False)
            return message

        async def sent(message: Message) -> None:
            is_body = message["type"] == "http.response.body"
            if is_unread and is_body and not message.get("more_body", False):
                await send({**message, "more_body": True})
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(UNREAD):
                        while is_unread:
                            await asyncio.wait_for(received(), UNREAD_PART)
                message = {"type": "http.response.body"}
            await send(message)

        await self._app(scope, received, sent)


def openapi(endpoints: Sequence[tuple[Dialect, Endpoint]], prefix: str) -> dict[str, Any]:
    """Description of endpoints in OpenAPI 3.1."""
    paths: dict[str, Any] = {}
    for dialect, endpoint in endpoints:
        for method in endpoint.methods:
            operation = endpoint.operation(dialect.key_field)
            paths.setdefault(endpoint.path, {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "transduce serve", "version": transduce.__version__},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
    }


def _counted(
    service: Service, dialect: Dialect, endpoint: Endpoint
) -> Callable[[Request], Awaitable[Response]]:
    """The handler of an endpoint for requests whose fields are read and whose key is good, with
    errors in the dialect, faults too, and requests counted."""

    async def answer(request: Request) -> Response:
        _check_head(request, service.settings, endpoint)
        if endpoint.public:
            return await endpoint.handler(request, Fields({}))
        await service.loaded_all()
        try:
            fields = await read_fields(request, service, dialect.key_field, endpoint.max_bytes)
        except RequestError as error:
            if error.status != 413 or not endpoint.too_large:
                raise
            message = f"{error.message}; {endpoint.too_large}"
            raise RequestError(error.status, message, error.kind) from None
        response = await endpoint.handler(request, fields)
        if ignored := fields.ignored():
            response.headers[IGNORED] = ", ".join(ignored)
        return response

    def answer_to(fault: RequestError) -> Response:
        if fault.kind in ("client_gone", "timeout"):
            service.metrics.count("cancelled_total")
        if endpoint.error_page is not None:
            return endpoint.error_page(fault)
        status = dialect.status_of(fault)
        content = dialect.error(status, fault.message, fault.kind)
        return JSONResponse(content, status, headers=fault.headers)

    async def counted(request: Request) -> Response:
        began = time.monotonic()
        status = 500
        try:
            try:
                response = await answer(request)
            except Exception as error:
                response = answer_to(fault_of(error, endpoint.path))
            status = response.status_code
        finally:
            path = endpoint.path
            service.metrics.count("requests_total", endpoint=path, status=str(status))
            service.metrics.observe("request_seconds", time.monotonic() - began, endpoint=path)
        return response

    return counted


def _check_head(request: Request, settings: ServeSettings, endpoint: Endpoint) -> None:
    """Raise RequestError for a head with too many fields, or of a page that may not write here.

    Where nobody needs a key, a page that a user of this machine has open could send the key-less
    requests of others.
    """
    if len(request.scope["headers"]) > MOST_HEADERS:
        raise RequestError(431, f"the request has more than {MOST_HEADERS} headers", "headers")
    origin = request.headers.get("origin", "")
    if not (endpoint.writes and origin) or settings.api_keys or origin in settings.allow_origin:
        return
    if origin.partition("://")[2] != request.headers.get("host"):
        raise RequestError(
            403,
            f"pages of {origin[:100]} may not write here; start the server with --allow-origin, or "
            "with keys",
            "origin",
        )


def _log_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if (error := context.get("exception")) is not None:
        log_fault("event loop", error)
    else:
        logger.error("event loop: %s", context["message"])


BACKLOG = 2048
SHARED_BACKLOG = 16
"""Connections that a worker takes at a time, so that others get some."""
PATIENCE, AGAIN = 0.25, 0.05
"""Seconds from the end of a client's side to the first sign of life, and between two."""


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket listening on an address; port 0 chooses a free port.  Raises SettingError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise SettingError(
            f"cannot listen on {host}:{port} ({error.strerror or error}); choose another --host or "
            "--port"
        ) from None
    return listener


class _Protocol(H11Protocol):
    """HTTP that also answers a client which has closed its sending side after a whole request.

    Such a client looks as if it had gone.  If it has not been answered after a while, it gets
    an interim response, which every client of HTTP/1.1 skips; where nobody reads it, the next one
    fails, and the request is given up.
    """

    _half_closed = False

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open while a whole request is unanswered."""
        if self.cycle is None or self.cycle.more_body or self.cycle.response_complete:
            return False
        if not self._half_closed:
            self._half_closed = True
            self.loop.call_later(PATIENCE, self._show_life)
        return True

    def on_response_complete(self) -> None:
        """Close the connection after the last answer."""
        super().on_response_complete()
        if self._half_closed and self.cycle.response_complete:
            self.transport.close()

    def _show_life(self) -> None:
        cycle = self.cycle
        if cycle.response_started or cycle.disconnected or self.scope["http_version"] != "1.1":
            return
        interim = h11.InformationalResponse(status_code=100, headers=[])
        self.transport.write(self.conn.send(interim))
        self.loop.call_later(AGAIN, self._show_life)


class _Server(uvicorn.Server):
    """A server that ends without error at a signal, after its requests are answered.

    ready: called once, when all runs are loaded.  numbers: of the signals.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        ready: Callable[[], None],
        numbers: Sequence[signal.Signals],
    ) -> None:
        super().__init__(config)
        self._service = service
        self._numbers = numbers
        self._ready: Callable[[], None] | None = ready
        self.interrupted = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, as many at a time as the configuration says, while others wait."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """Called every tenth of a second by uvicorn; True ends the server."""
        if self._ready is not None and self._service.ready:
            self._ready()
            self._ready = None
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End at SIGTERM or SIGINT; at the second at once, even where Python is kept from
        running."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(number: int, frame: FrameType | None) -> None:
            for signal_number in before:
                signal.signal(signal_number, signal.SIG_DFL)
            self._service.stopping = self.should_exit = True
            self.interrupted = number == signal.SIGINT

        before = {number: signal.signal(number, end) for number in self._numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Log the place of a fault instead of its traceback, which may hold a text of a user."""
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        log_fault("server", error)
    return error is None


def url_of(listener: socket.socket, settings: ServeSettings) -> str:
    """Address of a server on a bound socket."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}{settings.url_prefix}"


def serve_forever(
    service: Service,
    listener: socket.socket,
    ready: Callable[[], None] = lambda: None,
    numbers: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> None:
    """Serve until SIGTERM, which lets running requests finish.

    service: with its runs.  listener: bound socket.  ready: called once all runs are loaded; until
    then, requests wait.  numbers: of the signals that end it.  Raises KeyboardInterrupt after
    SIGINT, and the error of a run that cannot be loaded.
    """
    for name in ("uvicorn.error", "uvicorn.access", "uvicorn.asgi", "python_multipart"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("uvicorn.error").addFilter(_without_traceback)
    config = uvicorn.Config(
        build_application(service),
        http=_Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG if service.settings.workers == 1 else SHARED_BACKLOG,
        h11_max_incomplete_event_size=service.settings.max_head_bytes,
        timeout_graceful_shutdown=int(service.settings.timeout) + 1,
    )
    server = _Server(config, service, ready, numbers)

    def fail() -> None:
        server.should_exit = True

    service.on_failure = fail
    server.run(sockets=[listener])
    if service.failure is not None:
        raise service.failure
    if server.interrupted:
        raise KeyboardInterrupt
