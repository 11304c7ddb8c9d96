"""The application: routes of all dialects, their errors, counting, CORS, the description."""

from __future__ import annotations

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
from transduce.serve.errors import RequestError
from transduce.serve.service import Service
from transduce.serve.untranslated import HEADER


def build_app(service: Service, dialects: Sequence[Dialect] = DIALECTS) -> Starlette:
    """The application over a service; it starts and closes the service."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.start()
        yield
        service.close()

    prefix = service.settings.url_prefix
    found = [(dialect, dialect.endpoints(service)) for dialect in dialects]
    description = openapi([one for _, endpoints in found for one in endpoints], prefix)

    async def spec(request: Request) -> Response:
        return JSONResponse(description)

    routes = [
        Route(
            one.path, _counted(service, dialect, one.path, one.handler), methods=list(one.methods)
        )
        for dialect, endpoints in found
        for one in endpoints
    ]
    routes.append(Route("/spec", _counted(service, dialects[-1], "/spec", spec)))

    async def router_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path.removeprefix(prefix)
        dialect = next(d for d in dialects if path.startswith(d.prefixes))
        content = dialect.error(error.status_code, str(error.detail), "http")
        return JSONResponse(content, error.status_code, headers=dict(error.headers or {}))

    cors = Middleware(
        CORSMiddleware,
        allow_origins=["*"],
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=[HEADER],
    )
    return Starlette(
        routes=[Mount(prefix, routes=routes)] if prefix else routes,
        exception_handlers={HTTPException: router_error},
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


def _counted(service: Service, dialect: Dialect, path: str, handler: Handler) -> Handler:
    """A handler whose errors are answered in its dialect, and whose requests are counted."""

    async def answer(request: Request) -> Response:
        began = time.monotonic()
        status = 500
        try:
            response = await handler(request)
            status = response.status_code
        except RequestError as error:
            status = error.status
            if error.kind in ("client_gone", "timeout"):
                service.metrics.count("cancelled_total")
            content = dialect.error(status, error.message, error.kind)
            response = JSONResponse(content, status, headers=error.headers)
        finally:
            service.metrics.count("requests_total", endpoint=path, status=str(status))
            service.metrics.observe("request_seconds", time.monotonic() - began, endpoint=path)
        return response

    return answer
