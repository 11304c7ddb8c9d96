"""Server-sent events of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request

from transduce.errors import TransduceError
from transduce.serve.calls import Call, watched
from transduce.serve.errors import RequestError
from transduce.serve.service import Service


def event(value: object) -> str:
    """A JSON value as an event."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def openai_error(status: int, message: str, kind: str) -> dict[str, Any]:
    """The shape of OpenAI's errors."""
    named = {429: "rate_limit_error"}.get(status, "invalid_request_error")
    named = "server_error" if status >= 500 else named
    return {"error": {"message": message, "type": named, "param": None, "code": kind}}


async def events_of(
    request: Request, service: Service, events: Callable[[Call], AsyncIterator[str]]
) -> AsyncIterator[str]:
    """The events of an answer; an error is the last one."""
    async with watched(request, service.settings.timeout) as call:
        try:
            async for one in events(call):
                yield one
        except RequestError as fault:
            yield event(openai_error(fault.status, fault.message, fault.kind))
        except TransduceError as fault:
            yield event(openai_error(400, str(fault), "invalid_request"))
