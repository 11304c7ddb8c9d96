"""Dialect: endpoints with the parser and the errors that the clients of an API expect;
server-sent events.

To add a dialect, write a subclass of `Dialect` in a module beside this one, with a method
`async (Request, Fields) -> Response` per endpoint, whose docstring describes it: it opens a call
(`watched`), asks the service, and builds the answer.  Then add the class to `DIALECTS`
(`dialects/__init__.py`).  Errors are raised as `RequestError`; the app reads the fields, checks the
key, answers errors, and counts the request.
"""

import asyncio
import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from transduce.errors import TransduceError
from transduce.serve.calls import SHORTER_TEXTS, Call, RequestError, fault_of, invalid, watched
from transduce.serve.requests import Fields
from transduce.serve.service import Service

Handler = Callable[[Request, Fields], Awaitable[Response]]
GET, POST = ("GET",), ("POST",)
GET_AND_POST = GET + POST


@dataclass(frozen=True)
class Endpoint:
    """A path with its handler, which receives the fields of a request with a good key."""

    path: str
    handler: Handler
    methods: tuple[str, ...] = GET
    fields: Mapping[str, str] = field(default_factory=dict)
    """Fields of the request with their descriptions; a name with a final * is required."""
    public: bool = False
    """True where no key is needed, and no field is read."""
    writes: bool = False
    """True where it changes what the server keeps beyond the answer."""
    max_bytes: int = 0
    """Bytes of a request body; 0 for `ServeSettings.max_body_bytes`."""
    too_large: str = ""
    """Remedy for a body beyond it."""
    error_page: Callable[[RequestError], Response] | None = None
    """Answer to an error, in place of the dialect's."""

    def operation(self, key_field: str) -> dict[str, Any]:
        """Description in OpenAPI.  key_field: of the dialect."""
        summary = (inspect.getdoc(self.handler) or "").partition("\n")[0].rstrip(".")
        responses = {"200": {"description": "OK"}}
        operation: dict[str, Any] = {"summary": summary, "responses": responses}
        if not self.public:
            for status, text in (("400", "Invalid request"), ("403", "Invalid API key")):
                responses[status] = {"description": text}
        if self.fields:
            content = {"application/json": {"schema": self._schema(key_field)}}
            operation["requestBody"] = {"content": content}
        names = [part[1:-1] for part in self.path.split("/") if part.startswith("{")]
        if names:
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in names
            ]
        return operation

    def _schema(self, key_field: str) -> dict[str, Any]:
        texts = {name.rstrip("*"): text for name, text in self.fields.items()}
        if key_field:
            texts[key_field] = "key, where the server needs one"
        properties = {name: {"description": text} for name, text in texts.items()}
        required = [name.rstrip("*") for name in self.fields if name.endswith("*")]
        return {"type": "object", "properties": properties, "required": required}


class Dialect(ABC):
    """Endpoints of an API over a service, and the shape of its errors."""

    prefixes: ClassVar[tuple[str, ...]]
    """Beginnings of the paths whose errors have this shape, also where no endpoint matches."""
    key_field: ClassVar[str] = "api_key"
    """Field that may have the key, in place of the header; empty for none."""
    statuses: ClassVar[Mapping[str, int]] = {}
    """Statuses of errors that differ in this API, by kind."""

    def __init__(self, service: Service) -> None:
        self.service = service

    @abstractmethod
    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""

    @staticmethod
    @abstractmethod
    def error(status: int, message: str, kind: str) -> Any:
        """JSON of an error.

        status: of HTTP.  message: for the user.  kind: code of the error.
        """

    def status_of(self, fault: RequestError) -> int:
        """The status of an error in this API."""
        return self.statuses.get(fault.kind, fault.status)


async def long_answer(content: object) -> Response:
    """An answer of many numbers in JSON, written step by step in a thread."""
    parts = json.JSONEncoder(separators=(",", ":"), allow_nan=False).iterencode(content)
    return Response(await asyncio.to_thread("".join, parts), media_type="application/json")


def event(value: object) -> str:
    """A JSON value as an event."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def streamed(
    request: Request,
    service: Service,
    events: Callable[[Call], AsyncIterator[str]],
    error: Callable[[int, str, str], Any],
    remedy: str = SHORTER_TEXTS,
) -> StreamingResponse:
    """The answer to a request in events; a fault is the last event.

    error: shape of the dialect's errors, of (status, message, kind).  remedy: of an answer that
    takes too long.
    """

    def event_of(fault: RequestError) -> str:
        return event(error(fault.status, fault.message, fault.kind))

    async def answered() -> AsyncIterator[str]:
        async with watched(request, service.settings.timeout, remedy) as call:
            try:
                async for text in events(call):
                    yield text
                    await asyncio.sleep(0)  # else all that is there goes out at once
            except TransduceError as fault:
                yield event_of(invalid(str(fault)))
            except Exception as fault:
                yield event_of(fault_of(fault, request.url.path))

    return StreamingResponse(answered(), media_type="text/event-stream")
