"""Documents of DeepL's API: upload, status, result."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.localise.document import LocalisedDocument
from transduce.localise.formats import FORMATS
from transduce.serve.calls import SHORTER_DOCUMENT, Call
from transduce.serve.dialects.deepl_requests import DeepLRequests
from transduce.serve.dialects.dialect import GET_AND_POST, POST, Endpoint
from transduce.serve.documents import BackgroundDocument, Documents
from transduce.serve.errors import RequestError, invalid
from transduce.serve.files import attachment
from transduce.serve.requests import Fields
from transduce.serve.settings import FILE_BYTES
from transduce.serve.untranslated import answer, headers

SIGNS = (
    (".html", re.compile(rb"\s*(?:<!doctype html|<html)", re.IGNORECASE)),
    (".docx", re.compile(rb"PK\x03\x04")),
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

    async def upload(self, request: Request, fields: Fields) -> Response:
        """Translate a document."""
        service = self._requests.service
        if service.settings.no_files:
            raise RequestError(403, "this server translates no documents", "disabled")
        upload = fields.file("file")
        target, asked = self._requests.target(fields), self._requests.source(fields)
        terms = self._requests.terms(fields, asked, target)
        name = document_name(fields.text("filename", "") or upload.name, upload.content)
        text = upload.content.decode("utf-8", "replace")
        if asked is None:
            call = Call(service.settings.timeout, SHORTER_DOCUMENT)
            sample = await service.sample(name, upload.content, target, call)
        source = asked or self._requests.detected(sample, target)
        service.path(source, target)

        async def translate(call: Call) -> LocalisedDocument:
            document = await service.translate_document(
                name, upload.content, source, target, call, terms
            )
            self._requests.billed[fields.key] += len(text)
            return document

        document = BackgroundDocument(name, len(upload.content), len(text))
        self._documents.start(document, translate)
        return JSONResponse({"document_id": document.identity, "document_key": document.key})

    async def status(self, request: Request, fields: Fields) -> Response:
        """Status of a document."""
        key = fields.text("document_key")
        document = self._documents.get(request.path_params["id"], key)
        content: dict[str, object] = {"document_id": document.identity, "status": document.status}
        if document.status == "done":
            content["billed_characters"] = document.n_characters
        elif document.error:
            content["error_message"] = document.error
        return answer(content, document.left)

    async def result(self, request: Request, fields: Fields) -> Response:
        """Fetch a translated document."""
        key = fields.text("document_key")
        document = self._documents.take(request.path_params["id"], key)
        return attachment(document.name, document.content or b"", headers(document.left))

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        upload = {
            "file*": "file, in a multipart form",
            "filename": "its name",
            "source_lang": "language code",
            "target_lang*": "language code",
            "glossary_id": "glossary of these languages",
        }
        key = {"document_key*": "key from the upload"}
        document = "/v2/document/{id}"
        return [
            Endpoint("/v2/document", self.upload, POST, upload, writes=True, max_bytes=FILE_BYTES),
            Endpoint(document, self.status, GET_AND_POST, key),
            Endpoint(f"{document}/result", self.result, GET_AND_POST, key),
        ]


def document_name(name: str, content: bytes) -> str:
    """Name of a document with the suffix of its format, found by its bytes where it has none.

    Raises RequestError 400 for a format that is not known.
    """
    path = PurePosixPath(name.replace("\\", "/").rpartition("/")[2][-200:])
    if path.suffix.lower() in FORMATS:
        return path.name
    if path.suffix:
        raise invalid(f"no format for {path.suffix}; use {', '.join(FORMATS)}")
    begin = content.removeprefix(BOM)[:200]
    suffix = next((suffix for suffix, sign in SIGNS if sign.match(begin)), ".txt")
    return f"{path.name or 'file'}{suffix}"
