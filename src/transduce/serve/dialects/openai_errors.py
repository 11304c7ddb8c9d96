"""Errors of OpenAI's API."""

from __future__ import annotations

from typing import Any


def error(status: int, message: str, kind: str) -> dict[str, Any]:
    """The shape of OpenAI's errors."""
    named = {429: "rate_limit_error"}.get(status, "invalid_request_error")
    named = "server_error" if status >= 500 else named
    kind = "invalid_api_key" if kind in ("no_key", "invalid_key") else kind
    return {"error": {"message": message, "type": named, "param": None, "code": kind}}
