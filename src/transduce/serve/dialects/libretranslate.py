"""LibreTranslate's API, for its clients: Weblate, SubtitleEdit, LiveCaptions and others.

Texts come by query string, form or JSON, and errors as {"error": message}.  Different from
LibreTranslate 1.9: wrong types are 400 instead of 500, indentation is kept, `&amp;` in text stays,
and POST /languages is answered.
"""

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.localise.formats import FORMATS
from transduce.serve.calls import SHORTER_DOCUMENT, RequestError, invalid, watched
from transduce.serve.dialects.dialect import GET_AND_POST, POST, Dialect, Endpoint
from transduce.serve.requests import Fields, missing
from transduce.serve.service import Service
from transduce.serve.settings import FILE_BYTES
from transduce.serve.storage import attachment, translated_name
from transduce.serve.translator import answer, left_of_records, left_of_texts, unknown_field
from transduce.text.languages import Detected, name_of

FRONTEND_TIMEOUT = 500
"""Milliseconds that a page waits after the last key."""


class LibreTranslate(Dialect):
    """Handlers over a service."""

    prefixes = ("/",)
    statuses: ClassVar = {"no_key": 400}

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.files = service.stores.files

    @staticmethod
    def error(status: int, message: str, kind: str) -> dict[str, str]:
        """The shape of LibreTranslate's errors.

        status: of HTTP.  message: for the user.  kind: code of the error.  Only the message is
        used.
        """
        return {"error": message}

    async def translate(self, request: Request, fields: Fields) -> Response:
        """Translate texts; texts of a list are answered together."""
        service = self.service
        texts, code = fields.texts("q"), fields.text("source")
        markup = fields.text("format", "text")
        if markup not in ("text", "html"):
            raise invalid(f"{markup} format is not supported")
        alternatives = fields.number("alternatives", 0, service.settings.max_alternatives)
        service.check_size(texts)
        source = None if code.lower() == "auto" else service.language(code)
        target = service.language(fields.text("target"))
        detected = self._detected(texts, target) if source is None else None
        if detected is not None:
            source = detected.language
        assert source is not None
        async with watched(request, service.settings.timeout) as call:
            translated = await service.translate(
                texts, source, target, call, alternatives, markup == "html"
            )
        columns: dict[str, list[Any]] = {"translatedText": [text.text for text in translated]}
        if detected is not None:
            columns["detectedLanguage"] = [_libretranslate_shown(detected)] * len(texts)
        if alternatives:
            columns["alternatives"] = [list(text.alternatives) for text in translated]
        many = isinstance(fields["q"], list)
        content = {name: column if many else column[0] for name, column in columns.items()}
        content |= service.via(source, target) | unknown_field(translated)
        return answer(content, left_of_texts(translated))

    async def detect(self, request: Request, fields: Fields) -> Response:
        """Detect the language."""
        texts = fields.texts("q")
        self.service.check_size(texts)
        return JSONResponse(
            [_libretranslate_shown(detected) for detected in self.service.detect(texts)]
        )

    async def translate_file(self, request: Request, fields: Fields) -> Response:
        """Translate a file."""
        service = self.service
        if service.settings.no_files:
            raise RequestError(403, "Files translation are disabled on this server.", "disabled")
        upload = fields.file("file")
        source, target = fields.text("source"), service.language(fields.text("target"))
        async with watched(request, service.settings.timeout, SHORTER_DOCUMENT) as call:
            if source.lower() == "auto":
                sample = await service.sample(*upload, target, call)
                source = self._detected([sample], target).language
            source = service.language(source)
            document = await service.translate_document(*upload, source, target, call)
        address = self.files.add(translated_name(upload.name, target), document.content)
        base = str(request.base_url).rstrip("/") + service.settings.url_prefix
        url = f"{base}/download_file/{quote(address)}"
        content = {"translatedFileUrl": url, **service.via(source, target)}
        return answer(content, left_of_records(document.records))

    async def download_file(self, request: Request, fields: Fields) -> Response:
        """Fetch a translated file."""
        name = request.path_params["name"]
        content = self.files.get(name)
        if content is None:
            raise RequestError(404, "this file is not there, or no longer", "not_found")
        return attachment(name.partition(".")[2], content)

    async def suggest(self, request: Request, fields: Fields) -> Response:
        """Suggest a translation."""
        service = self.service
        service.check_suggestions()
        texts = fields.text("q"), fields.text("s")
        source = service.language(fields.text("source"))
        service.suggest(*texts, source, service.language(fields.text("target")))
        return JSONResponse({"success": True})

    async def languages(self, request: Request, fields: Fields) -> Response:
        """Languages and targets."""
        languages = self.service.languages
        return JSONResponse(
            [
                {"code": code, "name": name_of(code), "targets": languages.targets(code)}
                for code in languages.codes
            ]
        )

    async def health(self, request: Request, fields: Fields) -> Response:
        """Readiness."""
        return JSONResponse(self.service.health())

    async def frontend_settings(self, request: Request, fields: Fields) -> Response:
        """Limits."""
        settings, languages = self.service.settings, self.service.languages
        source, *_ = languages.sources or ("en",)
        target, *_ = [code for code in languages.targets(source) if code != source] or [source]
        return JSONResponse(
            {
                "charLimit": settings.max_chars,
                "frontendTimeout": FRONTEND_TIMEOUT,
                "apiKeys": settings.api_keys is not None,
                "keyRequired": settings.api_keys is not None,
                "suggestions": settings.suggestions is not None,
                "filesTranslation": not settings.no_files,
                "supportedFilesFormat": [] if settings.no_files else list(FORMATS),
                "language": {
                    "source": {"code": "auto", "name": "Auto Detect"},
                    "target": {"code": target, "name": name_of(target)},
                },
            }
        )

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        texts = {"q*": "text, or list of texts"}
        pair = {"source*": "language code, or auto", "target*": "language code"}
        translate = {"format": "text or html", "alternatives": "number of other translations"}
        file = {"file*": "file, in a multipart form", **pair}
        suggest = {"q*": "text", "s*": "its translation", **pair}
        return [
            Endpoint("/translate", self.translate, POST, texts | pair | translate),
            Endpoint(
                "/translate_file",
                self.translate_file,
                POST,
                file,
                writes=True,
                max_bytes=FILE_BYTES,
            ),
            Endpoint("/download_file/{name}", self.download_file, public=True),
            Endpoint("/suggest", self.suggest, POST, suggest, writes=True),
            Endpoint("/detect", self.detect, POST, texts),
            Endpoint("/languages", self.languages, GET_AND_POST, public=True),
            Endpoint("/health", self.health, public=True),
            Endpoint("/frontend/settings", self.frontend_settings, public=True),
        ]

    def _detected(self, texts: Sequence[str], target: str) -> Detected:
        """The language of texts; where that is uncertain, one that can be translated into the
        target."""
        detected = self.service.detect(texts)
        if not detected:
            raise missing("source")
        languages = self.service.languages
        if detected[0].confidence or languages.path(detected[0].language, target) is not None:
            return detected[0]
        able = [code for code in languages.sources if languages.path(code, target) is not None]
        return Detected(able[0] if able else target, 0.0)


def _libretranslate_shown(detected: Detected) -> dict[str, Any]:
    return {"confidence": detected.confidence, "language": detected.language}
