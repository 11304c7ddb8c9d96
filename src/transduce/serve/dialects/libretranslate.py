"""LibreTranslate's API, for its clients: Weblate, SubtitleEdit, LiveCaptions and others.

Texts come by query string, form or JSON, and errors as {"error": message}.  Different from
LibreTranslate 1.9: wrong types are 400 instead of 500, indentation is kept, `&amp;` in text stays,
and POST /languages is answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.serve.calls import watched
from transduce.serve.detection import Detected
from transduce.serve.dialects.dialect import Dialect, Endpoint
from transduce.serve.errors import RequestError, invalid, unavailable
from transduce.serve.languages import name_of
from transduce.serve.requests import Fields, missing, read_fields
from transduce.serve.service import Service, Translated

FRONTEND_TIMEOUT = 500
"""Milliseconds that a page waits after the last key."""


@dataclass(frozen=True)
class TranslateRequest:
    """A checked request to translate.

    many: True if the texts came as a list, and are answered as one.
    """

    texts: tuple[str, ...]
    many: bool
    source: str
    target: str
    alternatives: int


def read_translate(fields: Fields, max_alternatives: int) -> TranslateRequest:
    """The fields of /translate."""
    texts = fields.texts("q")
    source, target = fields.text("source"), fields.text("target")
    markup = fields.text("format", "text")
    if markup != "text":
        raise invalid(f"{markup} format is not supported")
    many = isinstance(fields["q"], list)
    alternatives = fields.number("alternatives", 0, max_alternatives)
    return TranslateRequest(tuple(texts), many, source, target, alternatives)


class LibreTranslate:
    """Handlers over a service."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def translate(self, request: Request) -> Response:
        """POST /translate."""
        service = self.service
        fields = await self._fields(request)
        order = read_translate(fields, service.settings.max_alternatives)
        service.check_size(order.texts)
        given = None if order.source.lower() == "auto" else service.language(order.source)
        target = service.language(order.target)
        detected = self._detected(order.texts, target) if given is None else None
        source = given or (detected.language if detected else target)
        async with watched(request, service.settings.timeout) as call:
            found = await service.translate(order.texts, source, target, call, order.alternatives)
        return JSONResponse(_answer(order, found, detected))

    async def detect(self, request: Request) -> Response:
        """POST /detect."""
        fields = await self._fields(request)
        texts = fields.texts("q")
        self.service.check_size(texts)
        return JSONResponse([_shown(one) for one in self.service.detect(texts)])

    async def languages(self, request: Request) -> Response:
        """GET /languages."""
        languages = self.service.languages
        return JSONResponse(
            [
                {"code": code, "name": name_of(code), "targets": languages.targets(code)}
                for code in languages.codes
            ]
        )

    async def health(self, request: Request) -> Response:
        """GET /health."""
        if not self.service.ready:
            raise unavailable("the server is not ready")
        return JSONResponse({"status": "ok"})

    async def frontend_settings(self, request: Request) -> Response:
        """GET /frontend/settings."""
        service = self.service
        source, *_ = service.languages.sources or ("en",)
        others = [code for code in service.languages.targets(source) if code != source]
        target = others[0] if others else source
        return JSONResponse(
            {
                "charLimit": service.settings.max_chars,
                "frontendTimeout": FRONTEND_TIMEOUT,
                "apiKeys": bool(service.settings.api_keys),
                "keyRequired": bool(service.settings.api_keys),
                "suggestions": service.settings.suggestions is not None,
                "filesTranslation": False,
                "supportedFilesFormat": [],
                "language": {
                    "source": {"code": "auto", "name": "Auto Detect"},
                    "target": {"code": target, "name": name_of(target)},
                },
            }
        )

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        post = ("POST",)
        texts = {"q*": "text, or list of texts"}
        key = {"api_key": "key, where the server needs one"}
        pair = {"source*": "language code, or auto", "target*": "language code"}
        options = {"format": "text", "alternatives": "number of other translations"}
        return [
            Endpoint("/translate", self.translate, post, "Translate", texts | pair | options | key),
            Endpoint("/detect", self.detect, post, "Detect the language", texts | key),
            Endpoint(
                "/languages", self.languages, ("GET", "POST"), "Languages and targets", public=True
            ),
            Endpoint("/health", self.health, summary="Readiness", public=True),
            Endpoint("/frontend/settings", self.frontend_settings, summary="Limits", public=True),
        ]

    async def _fields(self, request: Request) -> Fields:
        fields = await read_fields(request, self.service.settings.max_body_bytes)
        try:
            self.service.check_key(fields.get("api_key"))
        except RequestError as error:
            if error.kind == "no_key":
                raise invalid(error.message, error.kind) from None
            raise
        return fields

    def _detected(self, texts: tuple[str, ...], target: str) -> Detected:
        """The language of texts; of one that no run reads, an error."""
        found = self.service.detect(texts)
        if not found:
            raise missing("source")
        best = found[0]
        languages = self.service.languages
        if best.confidence or languages.path(best.language, target) is not None:
            return best
        able = [code for code in languages.sources if languages.path(code, target) is not None]
        return Detected(able[0] if able else target, 0.0)


def _answer(
    order: TranslateRequest, found: list[Translated], detected: Detected | None
) -> dict[str, Any]:
    texts = [one.text for one in found]
    answer: dict[str, Any] = {"translatedText": texts if order.many else texts[0]}
    if detected is not None:
        shown = _shown(detected)
        answer["detectedLanguage"] = [shown] * len(texts) if order.many else shown
    if order.alternatives:
        others = [list(one.alternatives) for one in found]
        answer["alternatives"] = others if order.many else others[0]
    return answer


def _shown(detected: Detected) -> dict[str, Any]:
    return {"confidence": detected.confidence, "language": detected.language}


def error(status: int, message: str, kind: str) -> dict[str, str]:
    """The shape of LibreTranslate's errors."""
    return {"error": message}


DIALECT = Dialect(
    "libretranslate", lambda service: LibreTranslate(service).endpoints(), error, ("/",)
)
