"""Errors of a request, which a dialect answers in its own words and shape."""

from __future__ import annotations

import errno
import logging
from collections.abc import Mapping

from transduce.errors import is_out_of_memory

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


class ClientGoneError(RequestError):
    """The client has closed its connection; no answer arrives."""

    def __init__(self) -> None:
        super().__init__(499, "client closed the connection", "client_gone")


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


def fault_at(name: str, place: str) -> RequestError:
    """The answer to a fault at a place, logged by a name."""
    logger.error("%s: %s", name, place)
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
