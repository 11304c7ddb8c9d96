"""Dialect: endpoints with the parser and the errors that the clients of one API expect.

To add one, write a module beside this one with

- a class with the service, and one method `async (Request) -> Response` per endpoint: it reads the
  fields (`read_fields`), checks the key (`service.check_key`), opens a call (`watched`), asks the
  service, and builds the answer;
- a function `(status, message, kind) -> JSON` that gives an error its shape;
- `DIALECT`, which names both, the paths that are its own, and describes each endpoint for OpenAPI;

then add it to `DIALECTS` (`dialects/__init__.py`).  Errors are raised as `RequestError`; the app
answers them, counts the request, and adds the parts common to all dialects.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from transduce.serve.service import Service

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Endpoint:
    """A path with its handler."""

    path: str
    handler: Handler
    methods: tuple[str, ...] = ("GET",)
    summary: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Fields of the request with their descriptions; a name with a final * is required."""
    public: bool = False
    """True where no key is needed."""
    writes: bool = False
    """True where it changes what the server keeps beyond the answer."""

    def operation(self) -> dict[str, Any]:
        """Description in OpenAPI."""
        found: dict[str, Any] = {
            "summary": self.summary,
            "responses": {"200": {"description": "OK"}},
        }
        if not self.public:
            for status, text in (("400", "Invalid request"), ("403", "Invalid API key")):
                found["responses"][status] = {"description": text}
        if self.fields:
            found["requestBody"] = {"content": {"application/json": {"schema": self._schema()}}}
        names = [part[1:-1] for part in self.path.split("/") if part.startswith("{")]
        if names:
            found["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                for name in names
            ]
        return found

    def _schema(self) -> dict[str, Any]:
        properties = {name.rstrip("*"): {"description": said} for name, said in self.fields.items()}
        required = [name.rstrip("*") for name in self.fields if name.endswith("*")]
        return {"type": "object", "properties": properties, "required": required}


@dataclass(frozen=True)
class Dialect:
    """Endpoints of one API, and the shape of its errors."""

    name: str
    endpoints: Callable[[Service], Sequence[Endpoint]]
    error: Callable[[int, str, str], Any]
    """Status, message, kind -> JSON."""
    prefixes: tuple[str, ...] = ()
    """Beginnings of the paths whose errors have this shape, also where no endpoint matches."""
