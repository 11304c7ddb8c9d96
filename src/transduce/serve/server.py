"""The process: socket, signals, end."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from transduce.errors import SettingError
from transduce.serve.app import build_app
from transduce.serve.errors import log_fault
from transduce.serve.service import Service

BACKLOG = 2048
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

    ready: called once, when all runs are loaded.
    """

    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._ready: Callable[[], None] | None = ready
        self.interrupted = False

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

        before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
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


def serve_forever(
    service: Service, listener: socket.socket, ready: Callable[[str], None] = lambda url: None
) -> None:
    """Serve until SIGTERM, which lets running requests finish.

    ready: receives the address once all runs are loaded; until then, requests wait.  Raises
    KeyboardInterrupt after SIGINT, and the error of a run that cannot be loaded.
    """
    for name in ("uvicorn.error", "uvicorn.access", "uvicorn.asgi", "python_multipart"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("uvicorn.error").addFilter(_without_traceback)
    config = uvicorn.Config(
        build_app(service),
        http=_Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=service.settings.max_head_bytes,
        timeout_graceful_shutdown=int(service.settings.timeout) + 1,
    )
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}{service.settings.url_prefix}"
    server = _Server(config, service, lambda: ready(address))

    def fail() -> None:
        server.should_exit = True

    service.on_failure = fail
    server.run(sockets=[listener])
    if service.failure is not None:
        raise service.failure
    if server.interrupted:
        raise KeyboardInterrupt
