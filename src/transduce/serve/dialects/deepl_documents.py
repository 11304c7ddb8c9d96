"""Documents of DeepL's API: upload, status, result."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.localise.formats import FORMATS
from transduce.localise.translate import LocalisedDocument
from transduce.serve.calls import Call
from transduce.serve.detection import MAX_CHARACTERS
from transduce.serve.dialects.deepl_requests import DeepLRequests
from transduce.serve.dialects.dialect import Endpoint
from transduce.serve.documents import BackgroundDocument, Documents
from transduce.serve.errors import RequestError, invalid
from transduce.serve.files import attachment
from transduce.serve.settings import FORM_BYTES
from transduce.serve.untranslated import answer, headers

SIGNS = (
    (".html", re.compile(rb"\s*(?:<!doctype html|<html)", re.IGNORECASE)),
    (".vtt", re.compile(rb"WEBVTT")),
    (".srt", re.compile(rb"\s*[0-9]+\s*\n\s*[0-9]+:[0-9]{2}:[0-9]{2}[,.][0-9]+ *-->")),
)
"""Beginnings of files that come without a name."""
BOM = b"\xef\xbb\xbf"


class DeepLDocuments:
    """Handlers of /v2/document."""

    def __init__(self, requests: DeepLRequests) -> None:
        self._requests = requests
        self._documents = Documents(requests.service.settings.timeout)

    async def upload(self, request: Request) -> Response:
        """POST /v2/document."""
        service = self._requests.service
        if not service.settings.files:
            raise RequestError(403, "this server translates no documents", "disabled")
        most = FORM_BYTES + service.settings.max_file_bytes
        fields, key = await self._requests.fields(request, most)
        upload = fields.file("file")
        data = upload.data
        target, given = self._requests.target(fields), self._requests.source(fields)
        terms = self._requests.terms(fields, given, target)
        name = document_name(fields.text("filename", "") or upload.name, data)
        text = data.decode("utf-8", "replace")
        source = given or self._requests.detected(text[:MAX_CHARACTERS], target)
        service.path(source, target)

        async def translate(call: Call) -> LocalisedDocument:
            made = await service.translate_document(name, data, source, target, call, terms)
            self._requests.billed[key] += len(text)
            return made

        document = BackgroundDocument(name, len(data), len(text))
        self._documents.start(document, translate)
        return JSONResponse({"document_id": document.identity, "document_key": document.key})

    async def status(self, request: Request) -> Response:
        """POST /v2/document/ID."""
        document = self._documents.get(*await self._named(request))
        content: dict[str, object] = {"document_id": document.identity, "status": document.status}
        if document.status == "done":
            content["billed_characters"] = document.n_characters
        elif document.error:
            content["error_message"] = document.error
        return answer(content, document.left)

    async def result(self, request: Request) -> Response:
        """POST /v2/document/ID/result."""
        document = self._documents.take(*await self._named(request))
        return attachment(document.name, document.data or b"", headers(document.left))

    async def _named(self, request: Request) -> tuple[str, str]:
        """Identity and key of a document."""
        fields, _ = await self._requests.fields(request)
        return request.path_params["id"], fields.text("document_key")

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        both = ("GET", "POST")
        asked = {
            "file*": "file, in a multipart form",
            "filename": "its name",
            "source_lang": "language code",
            "target_lang*": "language code",
            "glossary_id": "glossary of these languages",
        }
        key = {"document_key*": "key from the upload"}
        one = "/v2/document/{id}"
        return [
            Endpoint(
                "/v2/document", self.upload, ("POST",), "Translate a document", asked, writes=True
            ),
            Endpoint(one, self.status, both, "Status of a document", key),
            Endpoint(f"{one}/result", self.result, both, "Fetch a translated document", key),
        ]


def document_name(name: str, data: bytes) -> str:
    """Name of a document with the suffix of its format, found by its bytes where it has none.

    Raises RequestError 400 for a format that is not known.
    """
    path = PurePosixPath(name.replace("\\", "/").rpartition("/")[2][-200:])
    if path.suffix.lower() in FORMATS:
        return path.name
    if path.suffix:
        raise invalid(f"no format for {path.suffix}; use {', '.join(FORMATS)}")
    begin = data.removeprefix(BOM)[:200]
    suffix = next((suffix for suffix, sign in SIGNS if sign.match(begin)), ".txt")
    return f"{path.name or 'file'}{suffix}"
