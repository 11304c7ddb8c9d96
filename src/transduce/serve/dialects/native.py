"""The server's own API: models, predictions for every task, streamed translation, operations.

Errors are {"error": {"message", "kind"}}.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from transduce.errors import TransduceError
from transduce.localise.record import Record
from transduce.serve.batches import Input
from transduce.serve.calls import Call, watched
from transduce.serve.dialects.dialect import Dialect, Endpoint
from transduce.serve.dialects.events import event, streamed
from transduce.serve.errors import invalid, unavailable
from transduce.serve.requests import Fields, missing, read_fields, texts_of
from transduce.serve.service import Model, Service
from transduce.serve.translator import lasting
from transduce.serve.untranslated import left_of_records


class Native:
    """Handlers over a service."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def models(self, request: Request) -> Response:
        """GET /api/models."""
        return JSONResponse({"models": [_shown(model) for model in self.service.models()]})

    async def predict(self, request: Request) -> Response:
        """POST /api/predict."""
        service = self.service
        fields = await read_fields(request, self.service)
        name = self._name(fields)
        names = service.loaded(name).loaded_run().inputs
        inputs = _inputs(fields.get("inputs"), names)
        options = _options(fields)
        async with watched(request, service.settings.timeout) as call:
            answers = await service.predict(name, inputs, call, options)
        shown = [
            {"error": str(one)} if isinstance(one, TransduceError) else one.fields()
            for one in answers
        ]
        return JSONResponse({"model": name, "predictions": shown})

    async def translate(self, request: Request) -> Response:
        """POST /api/translate: the translation of a text as server-sent events."""
        service = self.service
        fields = await read_fields(request, self.service)
        text = fields.text("q")
        target = service.language(fields.text("target"))
        source = service.language(fields.text("source"))
        service.check_size([text])
        service.path(source, target)
        if not service.ready:
            raise unavailable("the server is loading")

        async def events(call: Call) -> AsyncIterator[str]:
            records: list[Record] = []
            async for part in lasting(service.stream(text, source, target, call), records):
                yield event({"text": part})
            left = left_of_records(records)
            yield event({"done": True, **({"untranslated": left} if left else {})})

        return streamed(request, service, events, error)

    async def live(self, request: Request) -> Response:
        """GET /health/live."""
        return JSONResponse({"status": "ok"})

    async def is_ready(self, request: Request) -> Response:
        """GET /health/ready."""
        if not self.service.ready:
            raise unavailable("stopping" if self.service.stopping else "loading")
        return JSONResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        """GET /metrics."""
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return PlainTextResponse(self.service.metrics.text(), media_type=kind)

    def endpoints(self) -> list[Endpoint]:
        """All endpoints; /metrics only where the settings have it."""
        post = ("POST",)
        key = {"api_key": "key, where the server needs one"}
        pair = {"source*": "language code", "target*": "language code"}
        asked = {
            "model": "name from /api/models; not needed where there is one",
            "inputs*": "list of texts, or of lists or objects of the texts of an input",
            "options": "decoding options that differ from the recipe's",
        }
        found = [
            Endpoint("/api/models", self.models, summary="Served runs", public=True),
            Endpoint("/api/predict", self.predict, post, "Predict, for every task", asked | key),
            Endpoint(
                "/api/translate",
                self.translate,
                post,
                "Translate a text, streamed as server-sent events",
                {"q*": "text"} | pair | key,
            ),
            Endpoint("/health/live", self.live, summary="Liveness", public=True),
            Endpoint("/health/ready", self.is_ready, summary="Readiness", public=True),
        ]
        if self.service.settings.metrics:
            found.append(
                Endpoint("/metrics", self.metrics, summary="Metrics for Prometheus", public=True)
            )
        return found

    def _name(self, fields: Fields) -> str:
        names = list(self.service.specs)
        return fields.text("model", names[0] if len(names) == 1 else None)


def _shown(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "task": model.task,
        "pairs": [{"source": source, "target": target} for source, target in model.pairs],
        "inputs": list(model.inputs),
        "decodes": model.decodes,
        "ready": model.ready,
    }


def _inputs(given: object, names: tuple[str, ...]) -> list[Input]:
    """Inputs as texts or lists of texts.  Raises RequestError for others."""
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list) or not given:
        raise missing("inputs")
    found: list[Input] = []
    for number, one in enumerate(given, 1):
        if isinstance(one, dict):
            one = [one.get(name) for name in names]
        texts = texts_of(one)
        if texts is None:
            raise invalid(f"input {number} is not a text or a list or object of texts")
        found.append(texts[0] if len(texts) == 1 else texts)
    return found


def _options(fields: Fields) -> dict[str, Any]:
    given = fields.get("options")
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise invalid("options is not an object")
    return given


def error(status: int, message: str, kind: str) -> dict[str, Any]:
    """The shape of errors."""
    return {"error": {"message": message, "kind": kind}}


DIALECT = Dialect(
    "native",
    lambda service: Native(service).endpoints(),
    error,
    ("/api/", "/health/", "/metrics"),
)
