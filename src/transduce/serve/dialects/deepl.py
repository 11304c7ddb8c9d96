"""DeepL's API of version 2, for its clients: texts, documents, glossaries, languages, usage.

Errors are {"message"}.  Tags and placeholders come out once each, or the text comes back as it is.
Different from DeepL: sentences are always split; `context`, `model_type` and a preferred formality
have no effect; a demanded formality is refused.
"""

import asyncio
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.errors import DataError
from transduce.localise.checks import Glossary, no_glossary, read_entries
from transduce.localise.document import LocalisedDocument
from transduce.localise.formats import FORMATS
from transduce.serve.calls import SHORTER_DOCUMENT, Call, RequestError, invalid, watched
from transduce.serve.dialects.dialect import GET_AND_POST, POST, Dialect, Endpoint
from transduce.serve.requests import Fields
from transduce.serve.runs import base_language
from transduce.serve.service import Service
from transduce.serve.settings import FILE_BYTES
from transduce.serve.storage import (
    BackgroundDocument,
    StoredGlossary,
    as_tsv,
    attachment,
    translated_later,
)
from transduce.serve.translator import Translated, answer, headers, left_of_texts
from transduce.text.languages import name_of

VARIANTS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
"""Codes that clients ask for in place of a target language without region."""


class DeepLRequests:
    """Reads the requests to a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.glossaries = service.stores.glossaries
        self._copies: dict[str, StoredGlossary] = {}

    def bill(self, key: str, n_characters: int) -> None:
        """Count characters that a key has had translated."""
        self.service.stores.billed.update({key: n_characters})

    def glossary(self, identity: str) -> StoredGlossary:
        """A glossary, whose terms are found once in a process.  Raises RequestError 404."""
        if identity not in self._copies or not self.glossaries.has(identity):
            self._copies = {i: g for i, g in self._copies.items() if self.glossaries.has(i)}
            self._copies[identity] = self.glossaries.get(identity)
        return self._copies[identity]

    def target(self, fields: Fields) -> str:
        """The target language."""
        return self.service.language(fields.text("target_lang"))

    def source(self, fields: Fields) -> str | None:
        """The source language; None to detect it."""
        code = fields.text("source_lang", "")
        return self.service.language(code) if code else None

    def detected(self, text: str, target: str) -> str:
        """The most probable language of a text from which the target can be reached."""
        languages = self.service.languages
        detected = [likely.language for likely in self.service.detect([text])]
        for code in (*detected, *languages.sources):
            if languages.path(code, target) is not None:
                return code
        return target

    def terms(self, fields: Fields, source: str | None, target: str) -> Glossary:
        """Terms of the glossary that a request names.  Raises RequestError 400 for other
        languages.

        fields: of the request.  source, target: codes of the languages; source may be None.
        """
        identity = fields.text("glossary_id", "")
        if not identity:
            return no_glossary
        if source is None:
            raise invalid("a glossary needs source_lang")
        glossary = self.glossary(identity)
        if (glossary.source, glossary.target) != (source, target):
            raise invalid(
                f"the glossary is for {glossary.source} to {glossary.target}, "
                f"not for {source} to {target}"
            )
        return lambda sentence: glossary.terms.constraints(sentence)


def source_code(code: str) -> str:
    """A source language as it is answered: without region and script."""
    return base_language(code).upper()


def target_names(codes: Sequence[str]) -> dict[str, str]:
    """Codes and names of target languages as they are answered."""
    names: dict[str, str] = {}
    for code in codes:
        names |= VARIANTS.get(code, {code.upper(): name_of(code)})
    return names


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
        self._documents = requests.service.stores.documents
        self._tasks: set[asyncio.Task[None]] = set()

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
            self._requests.bill(fields.key, len(text))
            return document

        document = BackgroundDocument(name, len(upload.content), len(text), worker=service.number)
        task = translated_later(self._documents, document, service.settings.timeout, translate)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
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


MOST_OF_A_NAME = 1000
"""Characters."""


class DeepLGlossaries:
    """Handlers of /v2/glossaries."""

    def __init__(self, requests: DeepLRequests) -> None:
        self._requests = requests
        self._glossaries = requests.glossaries

    async def pairs(self, request: Request, fields: Fields) -> Response:
        """Pairs for glossaries."""
        pairs = {
            (base_language(s), base_language(t)) for s, t in self._requests.service.languages.pairs
        }
        shown = [{"source_lang": source, "target_lang": target} for source, target in sorted(pairs)]
        return JSONResponse({"supported_languages": shown})

    async def create(self, request: Request, fields: Fields) -> Response:
        """Create a glossary."""
        service = self._requests.service
        name = fields.text("name")
        if len(name) > MOST_OF_A_NAME:
            raise invalid(f"name exceeds {MOST_OF_A_NAME} characters")
        source = service.language(fields.text("source_lang"))
        target = service.language(fields.text("target_lang"))
        if (source, target) not in service.languages.pairs:
            raise invalid(f"no run translates {source} to {target} directly")
        form = fields.choice("entries_format", ("tsv", "csv"))
        try:
            text = fields.text("entries")
            entries = await asyncio.to_thread(read_entries, text, form == "csv")
        except DataError as error:
            raise invalid(str(error)) from None
        glossary = StoredGlossary(name, source, target, entries)
        await asyncio.to_thread(self._glossaries.add, glossary)
        return JSONResponse(_shown(glossary), 201)

    async def all(self, request: Request, fields: Fields) -> Response:
        """Glossaries."""
        return JSONResponse(
            {"glossaries": [_shown(glossary) for glossary in self._glossaries.all()]}
        )

    async def show(self, request: Request, fields: Fields) -> Response:
        """A glossary."""
        return JSONResponse(_shown(self._glossaries.get(request.path_params["id"])))

    async def entries(self, request: Request, fields: Fields) -> Response:
        """Entries of a glossary."""
        glossary = self._glossaries.get(request.path_params["id"])
        kind = "text/tab-separated-values; charset=utf-8"
        return Response(as_tsv(glossary.entries), media_type=kind)

    async def delete(self, request: Request, fields: Fields) -> Response:
        """Delete a glossary."""
        await asyncio.to_thread(self._glossaries.delete, request.path_params["id"])
        return Response(status_code=204)

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        create = {
            "name*": "name",
            "source_lang*": "language code",
            "target_lang*": "language code",
            "entries*": "lines of source and target",
            "entries_format": "tsv or csv",
        }
        glossaries, glossary = "/v2/glossaries", "/v2/glossaries/{id}"
        return [
            Endpoint("/v2/glossary-language-pairs", self.pairs),
            Endpoint(glossaries, self.create, POST, create, writes=True),
            Endpoint(glossaries, self.all),
            Endpoint(glossary, self.show),
            Endpoint(glossary, self.delete, ("DELETE",), writes=True),
            Endpoint(f"{glossary}/entries", self.entries),
        ]


def _shown(glossary: StoredGlossary) -> dict[str, Any]:
    created = glossary.created.isoformat(timespec="milliseconds")
    return {
        "glossary_id": glossary.identity,
        "name": glossary.name,
        "ready": True,
        "source_lang": base_language(glossary.source),
        "target_lang": base_language(glossary.target),
        "creation_time": created.replace("+00:00", "Z"),
        "entry_count": len(glossary.entries),
    }


NO_LIMIT = 1_000_000_000_000
"""Characters that a key may have translated."""
SPLITTING = ("0", "1", "nonewlines", "default")
FORMALITIES = ("default", "prefer_more", "prefer_less")
NAME = re.compile(r"[A-Za-z_][\w.-]*")
MOST_TAGS = 100


class DeepL(Dialect):
    """Handlers over a service."""

    prefixes = ("/v2/",)
    key_field = "auth_key"
    statuses: ClassVar = {"no_key": 403, "too_large": 413}

    @staticmethod
    def error(status: int, message: str, kind: str) -> dict[str, str]:
        """The shape of DeepL's errors.

        status: of HTTP.  message: for the user.  kind: code of the error.  Only the message is
        used.
        """
        return {"message": message}

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.requests = DeepLRequests(service)

    async def translate(self, request: Request, fields: Fields) -> Response:
        """Translate."""
        service = self.service
        texts = fields.texts("text")
        asked, target = self.requests.source(fields), self.requests.target(fields)
        tags = fields.choice("tag_handling", ("", "html", "xml"))
        if fields.text("formality", "default") not in FORMALITIES:
            raise invalid("formality cannot be demanded; use prefer_more, prefer_less or default")
        if str(fields.get("split_sentences") or "1").lower() not in SPLITTING:
            raise invalid("split_sentences is not 0, 1 or nonewlines")
        fields.disregard("formality", "split_sentences")
        names = _names(fields) if tags else ()
        terms = self.requests.terms(fields, asked, target)
        service.check_size(texts)
        sources = await asyncio.to_thread(
            lambda: [asked or self.requests.detected(text, target) for text in texts]
        )
        for source in set(sources):
            service.path(source, target)
        hidden = await asyncio.to_thread(lambda: [without_elements(t, names) for t in texts])

        async def translated_from(source: str) -> Iterator[Translated]:
            some = [text for (text, _), of in zip(hidden, sources, strict=True) if of == source]
            html = tags == "html"
            return iter(await service.translate(some, source, target, call, 0, html, terms))

        languages = list(dict.fromkeys(sources))
        async with watched(request, service.settings.timeout) as call:
            parts = await asyncio.gather(*map(translated_from, languages))
        translations = dict(zip(languages, parts, strict=True))
        translated = [next(translations[source]) for source in sources]
        self.requests.bill(fields.key, sum(map(len, texts)))
        shown = [
            {
                "detected_source_language": source_code(source),
                "text": with_elements(translation.text, elements),
                "billed_characters": len(text),
                **service.via(source, target),
            }
            for text, source, translation, (_, elements) in zip(
                texts, sources, translated, hidden, strict=True
            )
        ]
        return answer({"translations": shown}, left_of_texts(translated))

    async def languages(self, request: Request, fields: Fields) -> Response:
        """Languages."""
        languages = self.service.languages
        if fields.choice("type", ("source", "target")) == "source":
            names = {source_code(code): name_of(code) for code in languages.sources}
            return JSONResponse([{"language": c, "name": n} for c, n in names.items()])
        targets = {target for _, target in languages.pairs}
        names = target_names([code for code in languages.codes if code in targets])
        more = {"supports_formality": False}
        return JSONResponse([{"language": c, "name": n, **more} for c, n in names.items()])

    async def usage(self, request: Request, fields: Fields) -> Response:
        """Characters translated."""
        count = self.service.stores.billed.get(fields.key, 0)
        return JSONResponse({"character_count": count, "character_limit": NO_LIMIT})

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        translate = {
            "text*": "text, or list of texts",
            "target_lang*": "language code",
            "source_lang": "language code; detected where it is missing",
            "tag_handling": "html or xml",
            "ignore_tags": "names of elements that are left alone, as a list or between commas",
            "glossary_id": "glossary of these languages",
        }
        return [
            Endpoint("/v2/translate", self.translate, POST, translate),
            Endpoint("/v2/languages", self.languages, GET_AND_POST, {"type": "source or target"}),
            Endpoint("/v2/usage", self.usage, GET_AND_POST),
            *DeepLGlossaries(self.requests).endpoints(),
            *DeepLDocuments(self.requests).endpoints(),
        ]


def _names(fields: Fields) -> tuple[str, ...]:
    if fields.get("ignore_tags") in (None, "", []):
        return ()
    names = [name.strip() for text in fields.texts("ignore_tags") for name in text.split(",")]
    names = [name for name in names if name]
    if len(names) > MOST_TAGS:
        raise invalid(f"ignore_tags has {len(names)} names; at most {MOST_TAGS}")
    for name in names:
        if NAME.fullmatch(name) is None:
            raise invalid(f"ignore_tags: {name!r} is not the name of an element")
    return tuple(names)


def without_elements(text: str, names: Sequence[str]) -> tuple[str, Mapping[str, str]]:
    """A text with empty elements in place of the elements with these names, and their content.

    An element without its end tag stays.
    """
    elements: dict[str, str] = {}
    if not names:
        return text, elements
    tag = re.compile(rf"<(/?)({'|'.join(map(re.escape, names))})(?:\s[^<>]*?)?(/?)>")
    unique = secrets.token_hex(6)
    parts: list[str] = []
    rest = begun = depth = 0
    current = ""
    for match in tag.finditer(text):
        is_end, name, is_empty = match[1] == "/", match[2], match[3] == "/"
        if is_empty or (depth and name != current) or (is_end and not depth):
            continue
        if not depth:
            begun, current = match.start(), name
        depth += -1 if is_end else 1
        if not depth:
            mark = f'<code id="{unique}-{len(elements)}"></code>'
            elements[mark] = text[begun : match.end()]
            parts += text[rest:begun], mark
            rest = match.end()
    return "".join([*parts, text[rest:]]), elements


def with_elements(text: str, elements: Mapping[str, str]) -> str:
    """A text with the elements back in their places."""
    for mark, element in elements.items():
        text = text.replace(mark, element)
    return text
