"""LibreTranslate's API, for its clients: Weblate, SubtitleEdit, LiveCaptions and others.

Texts come by query string, form or JSON, and errors as {"error": message}.  Different from
LibreTranslate 1.9: wrong types are 400 instead of 500, indentation is kept, `&amp;` in text stays,
and POST /languages is answered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.localise.formats import FORMATS
from transduce.serve.calls import watched
from transduce.serve.detection import MAX_CHARACTERS, Detected
from transduce.serve.dialects.dialect import Dialect, Endpoint
from transduce.serve.errors import RequestError, invalid, unavailable
from transduce.serve.files import FileStore, attachment, translated_name
from transduce.serve.requests import Fields, missing, read_fields
from transduce.serve.service import Service
from transduce.serve.settings import FORM_BYTES
from transduce.serve.translator import Translated
from transduce.serve.untranslated import answer, left_of_records, left_of_texts
from transduce.text.language_names import name_of

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
    html: bool
    alternatives: int


def read_translate(fields: Fields, max_alternatives: int) -> TranslateRequest:
    """The fields of /translate."""
    texts = fields.texts("q")
    source, target = fields.text("source"), fields.text("target")
    markup = fields.text("format", "text")
    if markup not in ("text", "html"):
        raise invalid(f"{markup} format is not supported")
    many = isinstance(fields["q"], list)
    alternatives = fields.number("alternatives", 0, max_alternatives)
    return TranslateRequest(tuple(texts), many, source, target, markup == "html", alternatives)


class LibreTranslate:
    """Handlers over a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.files = FileStore()

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
            found = await service.translate(
                order.texts, source, target, call, order.alternatives, html=order.html
            )
        return answer(_answer(order, found, detected), left_of_texts(found))

    async def detect(self, request: Request) -> Response:
        """POST /detect."""
        fields = await self._fields(request)
        texts = fields.texts("q")
        self.service.check_size(texts)
        return JSONResponse([_shown(one) for one in self.service.detect(texts)])

    async def translate_file(self, request: Request) -> Response:
        """POST /translate_file."""
        service = self.service
        if not service.settings.files:
            raise RequestError(403, "Files translation are disabled on this server.", "disabled")
        fields = await self._fields(request, FORM_BYTES + service.settings.max_file_bytes)
        upload = fields.file("file")
        source, target = fields.text("source"), service.language(fields.text("target"))
        if source.lower() == "auto":
            sample = upload.data[: 4 * MAX_CHARACTERS].decode("utf-8", "replace")
            source = self._detected((sample,), target).language
        source = service.language(source)
        async with watched(request, service.settings.timeout) as call:
            made = await service.translate_document(*upload, source, target, call)
        address = self.files.add(translated_name(upload.name, target), made.content)
        base = str(request.base_url).rstrip("/") + service.settings.url_prefix
        url = f"{base}/download_file/{quote(address)}"
        return answer({"translatedFileUrl": url}, left_of_records(made.records))

    async def download_file(self, request: Request) -> Response:
        """GET /download_file/NAME."""
        name = request.path_params["name"]
        data = self.files.get(name)
        if data is None:
            raise RequestError(404, "this file is not there, or no longer", "not_found")
        return attachment(name.partition(".")[2], data)

    async def suggest(self, request: Request) -> Response:
        """POST /suggest."""
        service = self.service
        fields = await self._fields(request)
        if service.settings.suggestions is not None:
            texts = fields.text("q"), fields.text("s")
            source = service.language(fields.text("source"))
            service.suggest(*texts, source, service.language(fields.text("target")))
        else:
            service.suggest("", "", "", "")
        return JSONResponse({"success": True})

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
                "filesTranslation": service.settings.files,
                "supportedFilesFormat": list(FORMATS) if service.settings.files else [],
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
        file = {"file*": "file, in a multipart form"}
        both = {"q*": "text", "s*": "its translation"}
        pair = {"source*": "language code, or auto", "target*": "language code"}
        options = {"format": "text or html", "alternatives": "number of other translations"}
        return [
            Endpoint("/translate", self.translate, post, "Translate", texts | pair | options | key),
            Endpoint(
                "/translate_file",
                self.translate_file,
                post,
                "Translate a file",
                file | pair | key,
                writes=True,
            ),
            Endpoint(
                "/download_file/{name}",
                self.download_file,
                summary="Fetch a translated file",
                public=True,
            ),
            Endpoint(
                "/suggest",
                self.suggest,
                post,
                "Suggest a translation",
                both | pair | key,
                writes=True,
            ),
            Endpoint("/detect", self.detect, post, "Detect the language", texts | key),
            Endpoint(
                "/languages", self.languages, ("GET", "POST"), "Languages and targets", public=True
            ),
            Endpoint("/health", self.health, summary="Readiness", public=True),
            Endpoint("/frontend/settings", self.frontend_settings, summary="Limits", public=True),
        ]

    async def _fields(self, request: Request, max_bytes: int = 0) -> Fields:
        try:
            return await read_fields(request, self.service, max_bytes=max_bytes)
        except RequestError as error:
            if error.kind == "no_key":
                raise invalid(error.message, error.kind) from None
            raise

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
    content: dict[str, Any] = {"translatedText": texts if order.many else texts[0]}
    if detected is not None:
        shown = _shown(detected)
        content["detectedLanguage"] = [shown] * len(texts) if order.many else shown
    if order.alternatives:
        others = [list(one.alternatives) for one in found]
        content["alternatives"] = others if order.many else others[0]
    return content


def _shown(detected: Detected) -> dict[str, Any]:
    return {"confidence": detected.confidence, "language": detected.language}


def error(status: int, message: str, kind: str) -> dict[str, str]:
    """The shape of LibreTranslate's errors."""
    return {"error": message}


DIALECT = Dialect(
    "libretranslate", lambda service: LibreTranslate(service).endpoints(), error, ("/",)
)
