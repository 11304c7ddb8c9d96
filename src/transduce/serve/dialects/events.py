"""Server-sent events: answers that come in parts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from transduce.errors import TransduceError
from transduce.serve.calls import Call, watched
from transduce.serve.errors import RequestError, fault_of, invalid
from transduce.serve.service import Service


def event(value: object) -> str:
    """A JSON value as an event."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def streamed(
    request: Request,
    service: Service,
    events: Callable[[Call], AsyncIterator[str]],
    error: Callable[[int, str, str], Any],
) -> StreamingResponse:
    """The answer to a request in events; a fault is the last event.

    error: shape of the dialect's errors, of (status, message, kind).
    """

    def event_of(fault: RequestError) -> str:
        return event(error(fault.status, fault.message, fault.kind))

    async def answered() -> AsyncIterator[str]:
        async with watched(request, service.settings.timeout) as call:
            try:
                async for text in events(call):
                    yield text
            except TransduceError as fault:
                yield event_of(invalid(str(fault)))
            except Exception as fault:
                yield event_of(fault_of(fault, request.url.path))

    return StreamingResponse(answered(), media_type="text/event-stream")
