"""The application: routes of all dialects, their errors, counting, CORS, the description."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
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
from transduce.serve.dialects.dialect import Dialect, Endpoint, Handler
from transduce.serve.errors import RequestError, fault_of, log_fault
from transduce.serve.service import Service
from transduce.serve.settings import ServeSettings
from transduce.serve.untranslated import HEADER as UNTRANSLATED

logger = logging.getLogger("transduce")

IGNORED = "Transduce-Ignored"
"""Header of an answer: names of the fields of the request that have no effect."""
MOST_HEADERS = 200
"""Header fields of a request."""


def build_app(service: Service, dialects: Sequence[Dialect] = DIALECTS) -> Starlette:
    """The application over a service; it starts and closes the service."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(_log_unhandled)
        service.start()
        yield
        service.close()

    prefix = service.settings.url_prefix
    endpoints = [(dialect, each) for dialect in dialects for each in dialect.endpoints(service)]
    description = openapi([endpoint for _, endpoint in endpoints], prefix)

    async def spec(request: Request) -> Response:
        return JSONResponse(description)

    routes = [
        Route(each.path, _counted(service, dialect, each), methods=list(each.methods))
        for dialect, each in [*endpoints, (dialects[-1], Endpoint("/spec", spec))]
    ]

    async def router_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path.removeprefix(prefix)
        dialect = next(d for d in dialects if path.startswith(d.prefixes))
        content = dialect.error(error.status_code, str(error.detail), "http")
        return JSONResponse(content, error.status_code, headers=dict(error.headers or {}))

    async def fault(request: Request, error: Exception) -> Response:
        return await router_error(request, HTTPException(500, fault_of(error).message))

    cors = Middleware(
        CORSMiddleware,
        allow_origins=["*"],
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=[UNTRANSLATED, IGNORED],
    )
    return Starlette(
        routes=[Mount(prefix, routes=routes)] if prefix else routes,
        exception_handlers={HTTPException: router_error, Exception: fault},
        middleware=[cors],
        lifespan=lifespan,
    )


def openapi(endpoints: Sequence[Endpoint], prefix: str) -> dict[str, Any]:
    """Description of endpoints in OpenAPI 3.1."""
    paths: dict[str, Any] = {}
    for one in endpoints:
        for method in one.methods:
            paths.setdefault(one.path, {})[method.lower()] = one.operation()
    return {
        "openapi": "3.1.0",
        "info": {"title": "transduce serve", "version": transduce.__version__},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
    }


def _counted(service: Service, dialect: Dialect, endpoint: Endpoint) -> Handler:
    """The handler of an endpoint with its errors in the dialect, faults too, and its requests
    counted."""

    def answer_to(error: RequestError) -> Response:
        if error.kind in ("client_gone", "timeout"):
            service.metrics.count("cancelled_total")
        content = dialect.error(error.status, error.message, error.kind)
        return JSONResponse(content, error.status, headers=error.headers)

    async def answer(request: Request) -> Response:
        began = time.monotonic()
        status = 500
        try:
            _check_head(request, service.settings, endpoint)
            if not endpoint.public:
                await service.loaded_all()
            response = await endpoint.handler(request)
            status = response.status_code
            fields = getattr(request.state, "fields", None)
            if fields is not None and (ignored := fields.ignored()):
                response.headers[IGNORED] = ", ".join(ignored)
        except RequestError as error:
            status, response = error.status, answer_to(error)
        except Exception as error:
            log_fault(endpoint.path, error)
            fault = fault_of(error)
            status, response = fault.status, answer_to(fault)
        finally:
            path = endpoint.path
            service.metrics.count("requests_total", endpoint=path, status=str(status))
            service.metrics.observe("request_seconds", time.monotonic() - began, endpoint=path)
        return response

    return answer


def _check_head(request: Request, settings: ServeSettings, endpoint: Endpoint) -> None:
    """Raise RequestError for a head with too many fields, or of a page that may not write here.

    Where nobody needs a key, a page that a user of this machine has open could send the key-less
    requests of others.
    """
    if len(request.scope["headers"]) > MOST_HEADERS:
        raise RequestError(431, f"the request has more than {MOST_HEADERS} headers", "too_large")
    origin = request.headers.get("origin", "")
    if not (endpoint.writes and origin) or settings.api_keys or origin in settings.allowed_origins:
        return
    if origin.partition("://")[2] != request.headers.get("host"):
        raise RequestError(
            403,
            f"pages of {origin[:100]} may not write here; start the server with --allow-origin, or "
            "with keys",
            "origin",
        )


def _log_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a fault outside all requests."""
    if (error := context.get("exception")) is not None:
        log_fault("event loop", error)
    else:
        logger.error("event loop: %s", context["message"])
