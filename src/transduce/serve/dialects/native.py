"""The server's own API: models, predictions for every task, streamed translation, operations.

Errors are {"error": {"message", "kind"}}.
"""

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from transduce.errors import TransduceError
from transduce.serve.calls import Call, RequestError, invalid, unavailable, watched
from transduce.serve.dialects.dialect import POST, Dialect, Endpoint, event, streamed
from transduce.serve.requests import Fields, missing, request_texts
from transduce.serve.service import Model
from transduce.serve.translator import Part, last_event, lasting
from transduce.serve.worker import Input


class Native(Dialect):
    """Handlers over a service."""

    prefixes = ("/api/", "/health/", "/metrics")

    @staticmethod
    def error(status: int, message: str, kind: str) -> dict[str, Any]:
        """The shape of errors.

        status: of HTTP.  message: for the user.  kind: code of the error.  The status is not part
        of it.
        """
        return {"error": {"message": message, "kind": kind}}

    async def models(self, request: Request, fields: Fields) -> Response:
        """Served runs."""
        return JSONResponse({"models": [_native_shown(model) for model in self.service.models()]})

    async def predict(self, request: Request, fields: Fields) -> Response:
        """Predict, for every task."""
        service = self.service
        names = list(service.specs)
        name = fields.text("model", names[0] if len(names) == 1 else None)
        options = fields.mapping("options")
        async with watched(request, service.settings.timeout) as call:
            queue = await service.present(name, call)
            inputs = _native_inputs(fields.get("inputs"), queue.inputs or ())
            answers = await service.predict(name, inputs, call, options)
        shown = [
            {"error": str(answer)} if isinstance(answer, TransduceError) else answer.fields()
            for answer in answers
        ]
        return JSONResponse({"model": name, "predictions": shown})

    async def translate(self, request: Request, fields: Fields) -> Response:
        """Translate a text, streamed as server-sent events."""
        service = self.service
        text = fields.text("q")
        target = service.language(fields.text("target"))
        source = service.language(fields.text("source"))
        service.check_size([text])
        service.path(source, target)
        if not service.ready:
            raise unavailable("the server is loading")

        async def events(call: Call) -> AsyncIterator[str]:
            ends: list[Part] = []
            async for part in lasting(service.stream(text, source, target, call), ends):
                yield event({"text": part})
            yield event(last_event(ends) | service.via(source, target))

        return streamed(request, service, events, self.error)

    async def live(self, request: Request, fields: Fields) -> Response:
        """Liveness."""
        return JSONResponse({"status": "ok"})

    async def is_ready(self, request: Request, fields: Fields) -> Response:
        """Readiness."""
        return JSONResponse(self.service.health())

    async def metrics(self, request: Request, fields: Fields) -> Response:
        """Metrics for Prometheus.  Raises RequestError 404 where the settings lack them."""
        if not self.service.settings.metrics:
            raise RequestError(404, "no metrics; start the server with --metrics", "not_found")
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return PlainTextResponse(self.service.metrics_text(), media_type=kind)

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        predict = {
            "model": "name from /api/models; not needed where there is one",
            "inputs*": "list of texts, or of lists or objects of the texts of an input",
            "options": "decoding options that differ from the recipe's",
        }
        translate = {"q*": "text", "source*": "language code", "target*": "language code"}
        return [
            Endpoint("/api/models", self.models, public=True),
            Endpoint("/api/predict", self.predict, POST, predict),
            Endpoint("/api/translate", self.translate, POST, translate),
            Endpoint("/health/live", self.live, public=True),
            Endpoint("/health/ready", self.is_ready, public=True),
            Endpoint("/metrics", self.metrics, public=True),
        ]


def _native_shown(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "task": model.task,
        "pairs": [{"source": source, "target": target} for source, target in model.pairs],
        "inputs": list(model.inputs),
        "decodes": model.decodes,
        "ready": model.ready,
    }


def _native_inputs(field: object, names: tuple[str, ...]) -> list[Input]:
    rows = [field] if isinstance(field, str) else field
    if not isinstance(rows, list) or not rows:
        raise missing("inputs")
    inputs: list[Input] = []
    for number, row in enumerate(rows, 1):
        texts = request_texts([row.get(name) for name in names] if isinstance(row, dict) else row)
        if texts is None:
            raise invalid(f"input {number} is not a text or a list or object of texts")
        inputs.append(texts[0] if len(texts) == 1 else texts)
    return inputs
