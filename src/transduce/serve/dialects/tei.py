"""Endpoints of text-embeddings-inference: embed, predict, rerank, info.

They are for the first embedding run and the first classification run.  Texts are ranked by the
cosine of their embeddings with the query's.  Errors are {"error", "error_type"}.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import transduce
from transduce.serve.calls import RequestError, invalid, watched
from transduce.serve.dialects.dialect import POST, Dialect, Endpoint, long_answer
from transduce.serve.requests import Fields, missing, request_texts
from transduce.serve.service import Model

EMBEDDING, CLASSIFICATION = "embedding", "classification"
ERROR_TYPES = {413: "Validation", 422: "Validation", 424: "Backend", 429: "Overloaded"}


class TextEmbeddingsInference(Dialect):
    """Handlers over a service."""

    prefixes = ("/embed", "/rerank", "/predict", "/info")
    key_field = ""
    statuses: ClassVar = {"too_large": 413, 400: 422}

    @staticmethod
    def error(status: int, message: str, kind: str) -> dict[str, str]:
        """The shape of text-embeddings-inference's errors."""
        return {"error": message, "error_type": ERROR_TYPES.get(status, "Unhealthy")}

    async def embed(self, request: Request, fields: Fields) -> Response:
        """Embed texts."""
        texts = fields.texts("inputs")
        normalize = fields.flag("normalize", True)
        names = [f"input {i + 1}" for i in range(len(texts))]
        vectors = await self._vectors(request, texts, names, normalize)
        return await long_answer(vectors)

    async def rerank(self, request: Request, fields: Fields) -> Response:
        """Rank texts for a query, the best first."""
        query, texts = fields.text("query"), fields.texts("texts")
        with_text = fields.flag("return_text", False)
        names = ["the query", *(f"texts[{i}]" for i in range(len(texts)))]
        first, *rest = await self._vectors(request, [query, *texts], names, normalize=True)
        scores = await asyncio.to_thread(
            lambda: [sum(a * b for a, b in zip(first, vector, strict=True)) for vector in rest]
        )
        ranked = sorted(range(len(texts)), key=lambda i: -scores[i])
        shown = [
            {"index": i, "score": scores[i], **({"text": texts[i]} if with_text else {})}
            for i in ranked
        ]
        return JSONResponse(shown)

    async def predict(self, request: Request, fields: Fields) -> Response:
        """Classify texts: labels with their probabilities, the best first."""
        service = self.service
        run = self._run(CLASSIFICATION)
        inputs, many = _inputs(fields.get("inputs"))
        async with watched(request, service.settings.timeout) as call:
            answers = await service.predict(run.name, inputs, call)
        shown = []
        for number, answer in enumerate(answers, 1):
            if not getattr(answer, "probabilities", None):
                raise invalid(f"input {number} is blank")
            ranked = sorted(answer.probabilities.items(), key=lambda pair: -pair[1])
            shown.append([{"score": score, "label": label} for label, score in ranked])
        return JSONResponse(shown if many else shown[0])

    async def info(self, request: Request, fields: Fields) -> Response:
        """Served model."""
        settings = self.service.settings
        kinds: dict[str, Any] = {}
        names = []
        for task, kind in ((EMBEDDING, EMBEDDING), (CLASSIFICATION, "classifier")):
            runs = [run.name for run in self.service.models() if run.task == task]
            if runs:
                kinds[kind] = {}
                names.append(runs[0])
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
        embed = {"inputs*": "text, or list of texts", "normalize": "false for the run's own length"}
        rerank = {"query*": "text", "texts*": "list of texts", "return_text": "true for the texts"}
        predict = {"inputs*": "text, or texts of one input as a list, or list of such lists"}
        return [
            Endpoint("/embed", self.embed, POST, embed),
            Endpoint("/rerank", self.rerank, POST, rerank),
            Endpoint("/predict", self.predict, POST, predict),
            Endpoint("/info", self.info, public=True),
        ]

    def _run(self, task: str) -> Model:
        for run in self.service.models():
            if run.task == task:
                return run
        raise RequestError(424, f"no run of the task {task!r} is served", "model_not_found")

    async def _vectors(
        self, request: Request, texts: Sequence[str], names: Sequence[str], normalize: bool
    ) -> list[tuple[float, ...]]:
        """Embeddings of texts, which have names in messages about blank texts."""
        run = self._run(EMBEDDING)
        async with watched(request, self.service.settings.timeout) as call:
            answers = await self.service.predict(run.name, texts, call)
        vectors = []
        for name, answer in zip(names, answers, strict=True):
            if not getattr(answer, "embedding", None):
                raise invalid(f"{name} is blank")
            vectors.append(_unit(answer.embedding) if normalize else answer.embedding)
        return vectors


def _inputs(field: object) -> tuple[list[str | list[str]], bool]:
    """Inputs, each of a text or several, and True for a list of them.

    A text, or a list of texts, is an input; a list of lists has an input in each.
    """
    if field is None or field in ("", []):
        raise missing("inputs")
    many = isinstance(field, list) and isinstance(field[0], list)
    rows = field if many and isinstance(field, list) else [field]
    inputs: list[str | list[str]] = []
    for number, row in enumerate(rows, 1):
        texts = request_texts(row)
        if not texts:
            raise invalid(f"input {number} is not a text or a list of texts")
        inputs.append(texts[0] if len(texts) == 1 else texts)
    return inputs, many


def _unit(vector: Sequence[float]) -> tuple[float, ...]:
    length = math.hypot(*vector) or 1.0
    return tuple(number / length for number in vector)
