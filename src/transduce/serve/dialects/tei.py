"""Endpoints of text-embeddings-inference: embed, predict, rerank, info.

They are for the first embedding run and the first classification run.  Texts are ranked by the
cosine of their embeddings with the query's.  Errors are {"error", "error_type"}.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import transduce
from transduce.serve.calls import watched
from transduce.serve.dialects.dialect import Dialect, Endpoint, Handler
from transduce.serve.errors import RequestError, invalid
from transduce.serve.requests import Fields, key_of, missing, read_fields, texts_of
from transduce.serve.service import Model, Service

EMBEDDING, CLASSIFICATION = "embedding", "classification"
ERROR_TYPES = {413: "Validation", 422: "Validation", 424: "Backend", 429: "Overloaded"}


class TextEmbeddingsInference:
    """Handlers over a service."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def embed(self, request: Request) -> Response:
        """POST /embed."""
        fields = await self._fields(request)
        texts = fields.texts("inputs")
        normalize = fields.flag("normalize", True)
        names = [f"input {i + 1}" for i in range(len(texts))]
        vectors = await self._vectors(request, texts, names, normalize)
        return JSONResponse([list(vector) for vector in vectors])

    async def rerank(self, request: Request) -> Response:
        """POST /rerank: the best first."""
        fields = await self._fields(request)
        query, texts = fields.text("query"), fields.texts("texts")
        with_text = fields.flag("return_text", False)
        names = ["the query", *(f"texts[{i}]" for i in range(len(texts)))]
        first, *rest = await self._vectors(request, [query, *texts], names, normalize=True)
        scores = [sum(a * b for a, b in zip(first, one, strict=True)) for one in rest]
        ranked = sorted(range(len(texts)), key=lambda i: -scores[i])
        shown = [
            {"index": i, "score": scores[i], **({"text": texts[i]} if with_text else {})}
            for i in ranked
        ]
        return JSONResponse(shown)

    async def predict(self, request: Request) -> Response:
        """POST /predict: labels with their probabilities, the best first."""
        service = self.service
        fields = await self._fields(request)
        run = self._run(CLASSIFICATION)
        inputs, many = _inputs(fields.get("inputs"))
        async with watched(request, service.settings.timeout) as call:
            answers = await service.predict(run.name, inputs, call)
        shown = []
        for number, answer in enumerate(answers, 1):
            if not getattr(answer, "probabilities", None):
                raise invalid(f"input {number} is blank")
            ranked = sorted(answer.probabilities.items(), key=lambda item: -item[1])
            shown.append([{"score": score, "label": label} for label, score in ranked])
        return JSONResponse(shown if many else shown[0])

    async def info(self, request: Request) -> Response:
        """GET /info."""
        settings = self.service.settings
        kinds: dict[str, Any] = {}
        names = []
        for task, kind in ((EMBEDDING, EMBEDDING), (CLASSIFICATION, "classifier")):
            found = [run.name for run in self.service.models() if run.task == task]
            if found:
                kinds[kind] = {}
                names.append(found[0])
        return JSONResponse(
            {
                "model_id": ", ".join(names),
                "model_type": kinds,
                "max_client_batch_size": settings.max_texts,
                "version": transduce.__version__,
            }
        )

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        post = ("POST",)
        embed = {"inputs*": "text, or list of texts", "normalize": "false for the run's own length"}
        rerank = {"query*": "text", "texts*": "list of texts", "return_text": "true for the texts"}
        predict = {"inputs*": "text, or texts of one input as a list, or list of such lists"}
        return [
            Endpoint("/embed", _worded(self.embed), post, "Embed texts", embed),
            Endpoint("/rerank", _worded(self.rerank), post, "Rank texts for a query", rerank),
            Endpoint("/predict", _worded(self.predict), post, "Classify texts", predict),
            Endpoint("/info", self.info, summary="Served model", public=True),
        ]

    async def _fields(self, request: Request) -> Fields:
        self.service.check_key(key_of(request))
        return await read_fields(request, self.service)

    def _run(self, task: str) -> Model:
        """The first run of a task.  Raises RequestError 424 for none."""
        for run in self.service.models():
            if run.task == task:
                return run
        raise RequestError(424, f"no run of the task {task!r} is served", "model_not_found")

    async def _vectors(
        self, request: Request, texts: Sequence[str], names: Sequence[str], normalize: bool
    ) -> list[tuple[float, ...]]:
        """Embeddings of texts, which have names in the message about a blank one."""
        run = self._run(EMBEDDING)
        async with watched(request, self.service.settings.timeout) as call:
            answers = await self.service.predict(run.name, texts, call)
        vectors = []
        for name, answer in zip(names, answers, strict=True):
            if not getattr(answer, "embedding", None):
                raise invalid(f"{name} is blank")
            vectors.append(_unit(answer.embedding) if normalize else answer.embedding)
        return vectors


def _worded(handler: Handler) -> Handler:
    """A handler with the statuses that clients expect: 422 for a wrong request, 413 for a large
    one."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except RequestError as fault:
            if fault.status != 400:
                raise
            status = 413 if fault.kind == "too_large" else 422
            raise RequestError(status, fault.message, fault.kind) from None

    return answer


def _inputs(given: object) -> tuple[list[str | list[str]], bool]:
    """Inputs, each of one text or several, and True for a list of them.

    A text, or a list of texts, is one input; a list of lists has one input in each.
    """
    if given is None or given in ("", []):
        raise missing("inputs")
    many = isinstance(given, list) and isinstance(given[0], list)
    rows = given if many and isinstance(given, list) else [given]
    found: list[str | list[str]] = []
    for number, row in enumerate(rows, 1):
        texts = texts_of(row)
        if not texts:
            raise invalid(f"input {number} is not a text or a list of texts")
        found.append(texts[0] if len(texts) == 1 else texts)
    return found, many


def _unit(vector: Sequence[float]) -> tuple[float, ...]:
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return tuple(value / length for value in vector)


def error(status: int, message: str, kind: str) -> dict[str, str]:
    """The shape of text-embeddings-inference's errors."""
    return {"error": message, "error_type": ERROR_TYPES.get(status, "Unhealthy")}


DIALECT = Dialect(
    "tei",
    lambda service: TextEmbeddingsInference(service).endpoints(),
    error,
    ("/embed", "/rerank", "/predict", "/info"),
)
