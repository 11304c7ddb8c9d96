"""The application: routes of all dialects, their errors, counting, CORS, the description."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

import transduce
from transduce.serve.dialects import DIALECTS
from transduce.serve.dialects.dialect import Dialect, Endpoint
from transduce.serve.errors import RequestError, fault_of, log_fault
from transduce.serve.requests import Fields, read_fields
from transduce.serve.service import Service
from transduce.serve.settings import ServeSettings
from transduce.serve.untranslated import HEADER as UNTRANSLATED

logger = logging.getLogger("transduce")

IGNORED = "Transduce-Ignored"
"""Header of an answer: names of the fields of the request that have no effect."""
MOST_HEADERS = 200
"""Header fields of a request."""


def build_app(service: Service) -> Starlette:
    """The application over a service; it starts and closes the service."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(_log_unhandled)
        service.start()
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
        middleware=[cors],
        lifespan=lifespan,
    )


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
        fields = await read_fields(request, service, dialect.key_field, endpoint.max_bytes)
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
