"""Server-sent events: answers that come in parts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import StreamingResponse

from transduce.errors import TransduceError
from transduce.serve.calls import Call, watched
from transduce.serve.errors import RequestError, fault_of, log_fault
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
    """The answer to a request in events; a fault is the last one.

    error: shape of the dialect's errors, of (status, message, kind).
    """

    async def found() -> AsyncIterator[str]:
        async with watched(request, service.settings.timeout) as call:
            try:
                async for one in events(call):
                    yield one
            except RequestError as fault:
                yield event(error(fault.status, fault.message, fault.kind))
            except TransduceError as fault:
                yield event(error(400, str(fault), "invalid_request"))
            except Exception as fault:
                log_fault(request.url.path, fault)
                answer = fault_of(fault)
                yield event(error(answer.status, answer.message, answer.kind))

    return StreamingResponse(found(), media_type="text/event-stream")
