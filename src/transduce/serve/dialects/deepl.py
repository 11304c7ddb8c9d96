"""DeepL's API of version 2, for its clients: texts, languages, usage.

Errors are {"message"}.  Tags and placeholders come out once each, or the text comes back as it is.
Different from DeepL: sentences are always split; `context`, `model_type` and a preferred formality
have no effect; a demanded formality is refused.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.serve.calls import watched
from transduce.serve.dialects.deepl_documents import DeepLDocuments
from transduce.serve.dialects.deepl_glossaries import DeepLGlossaries
from transduce.serve.dialects.deepl_requests import DeepLRequests, source_code, target_names
from transduce.serve.dialects.dialect import GET_AND_POST, POST, Dialect, Endpoint
from transduce.serve.errors import invalid
from transduce.serve.requests import Fields
from transduce.serve.service import Service
from transduce.serve.translator import Translated
from transduce.serve.untranslated import answer, left_of_texts
from transduce.text.language_names import name_of

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
        """The shape of DeepL's errors."""
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
        sources = [asked or self.requests.detected(text, target) for text in texts]
        for source in set(sources):
            service.path(source, target)
        hidden = [without_elements(text, names) for text in texts]

        async def translated_from(source: str) -> Iterator[Translated]:
            some = [text for (text, _), of in zip(hidden, sources, strict=True) if of == source]
            html = tags == "html"
            return iter(await service.translate(some, source, target, call, 0, html, terms))

        languages = list(dict.fromkeys(sources))
        async with watched(request, service.settings.timeout) as call:
            parts = await asyncio.gather(*map(translated_from, languages))
        translations = dict(zip(languages, parts, strict=True))
        translated = [next(translations[source]) for source in sources]
        self.requests.billed[fields.key] += sum(map(len, texts))
        shown = [
            {
                "detected_source_language": source_code(source),
                "text": with_elements(translation.text, elements),
                "billed_characters": len(text),
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
        count = self.requests.billed[fields.key]
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
