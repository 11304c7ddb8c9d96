"""Errors of a request, which a dialect answers in its own words and shape."""

from __future__ import annotations

from collections.abc import Mapping


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


def unavailable(message: str, kind: str = "unavailable") -> RequestError:
    """Status 503, to be repeated later."""
    return RequestError(503, message, kind, {"Retry-After": "5"})
