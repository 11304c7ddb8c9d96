"""DeepL's API of version 2, for its clients: texts, languages, usage.

Errors are {"message"}.  Tags and placeholders come out once each, or the text comes back as it is.
Different from DeepL: sentences are always split; `context`, `model_type` and a preferred formality
have no effect; a demanded formality is refused.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.serve.calls import Call, watched
from transduce.serve.dialects.deepl_documents import DeepLDocuments
from transduce.serve.dialects.deepl_glossaries import DeepLGlossaries
from transduce.serve.dialects.deepl_requests import DeepLRequests, source_code, target_names
from transduce.serve.dialects.dialect import Dialect, Endpoint
from transduce.serve.errors import RequestError, invalid
from transduce.serve.requests import Fields
from transduce.serve.service import Service
from transduce.serve.translator import Glossary, Translated
from transduce.serve.untranslated import Left, answer, left_of_texts
from transduce.text.language_names import name_of

NO_LIMIT = 1_000_000_000_000
"""Characters that a key may have translated."""
SPLITTING = ("0", "1", "nonewlines", "default")
FORMALITIES = ("default", "prefer_more", "prefer_less")
NAME = re.compile(r"[A-Za-z_][\w.-]*")
MOST_TAGS = 100


@dataclass(frozen=True)
class TranslateRequest:
    """A checked request to translate.

    source: served language, None to detect it for each text. html: texts are HTML. ignored: names
    of the elements that stay untranslated.
    """

    texts: tuple[str, ...]
    source: str | None
    target: str
    terms: Glossary
    html: bool
    ignored: tuple[str, ...]


class DeepL:
    """Handlers over a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.requests = DeepLRequests(service)

    async def translate(self, request: Request) -> Response:
        """POST /v2/translate."""
        service = self.service
        fields, key = await self.requests.fields(request)
        order = self._order(fields)
        try:
            service.check_size(order.texts)
        except RequestError as fault:
            raise RequestError(413, fault.message, fault.kind) from None
        sources = [order.source or self.requests.detected(t, order.target) for t in order.texts]
        for source in set(sources):
            service.path(source, order.target)
        async with watched(request, service.settings.timeout) as call:
            found, left = await self._translated(order, sources, call)
        self.requests.billed[key] += sum(map(len, order.texts))
        shown = [
            {
                "detected_source_language": source_code(source),
                "text": text,
                "billed_characters": len(given),
            }
            for given, source, text in zip(order.texts, sources, found, strict=True)
        ]
        return answer({"translations": shown}, left)

    async def languages(self, request: Request) -> Response:
        """GET /v2/languages, with the type in query string, form or JSON."""
        fields, _ = await self.requests.fields(request)
        languages = self.service.languages
        kind = fields.text("type", "source")
        if kind == "source":
            names = {source_code(code): name_of(code) for code in languages.sources}
        elif kind == "target":
            targets = {target for _, target in languages.pairs}
            names = target_names([code for code in languages.codes if code in targets])
        else:
            raise invalid(f"type {kind!r} is neither source nor target")
        more = {"supports_formality": False} if kind == "target" else {}
        return JSONResponse([{"language": c, "name": n, **more} for c, n in names.items()])

    async def usage(self, request: Request) -> Response:
        """GET /v2/usage."""
        _, key = await self.requests.fields(request)
        count = self.requests.billed[key]
        return JSONResponse({"character_count": count, "character_limit": NO_LIMIT})

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        both = ("GET", "POST")
        asked = {
            "text*": "text, or list of texts",
            "target_lang*": "language code",
            "source_lang": "language code; detected where it is missing",
            "tag_handling": "html or xml",
            "ignore_tags": "names of elements that are left alone, as a list or between commas",
            "glossary_id": "glossary of these languages",
        }
        return [
            Endpoint("/v2/translate", self.translate, ("POST",), "Translate", asked),
            Endpoint("/v2/languages", self.languages, both, "Languages", {"type": "or target"}),
            Endpoint("/v2/usage", self.usage, both, "Characters translated"),
            *DeepLGlossaries(self.requests).endpoints(),
            *DeepLDocuments(self.requests).endpoints(),
        ]

    def _order(self, fields: Fields) -> TranslateRequest:
        texts = fields.texts("text")
        source, target = self.requests.source(fields), self.requests.target(fields)
        tags = fields.text("tag_handling", "")
        if tags not in ("", "html", "xml"):
            raise invalid(f"tag_handling {tags!r} is neither html nor xml")
        if fields.text("formality", "default") not in FORMALITIES:
            raise invalid("formality cannot be demanded; use prefer_more, prefer_less or default")
        if str(fields.get("split_sentences") or "1").lower() not in SPLITTING:
            raise invalid("split_sentences is not 0, 1 or nonewlines")
        fields.disregard("formality", "split_sentences")
        ignored = _names(fields) if tags else ()
        terms = self.requests.terms(fields, source, target)
        return TranslateRequest(tuple(texts), source, target, terms, tags == "html", ignored)

    async def _translated(
        self, order: TranslateRequest, sources: Sequence[str], call: Call
    ) -> tuple[list[str], Left]:
        """The translation of each text, and what is left; texts of one language go together."""
        hidden = [without_elements(text, order.ignored) for text in order.texts]

        async def of(source: str) -> dict[int, Translated]:
            places = [i for i, one in enumerate(sources) if one == source]
            found = await self.service.translate(
                [hidden[i][0] for i in places],
                source,
                order.target,
                call,
                html=order.html,
                glossary=order.terms,
            )
            return dict(zip(places, found, strict=True))

        texts: dict[int, Translated] = {}
        for some in await asyncio.gather(*map(of, dict.fromkeys(sources))):
            texts |= some
        whole = [with_elements(texts[i].text, kept) for i, (_, kept) in enumerate(hidden)]
        return whole, left_of_texts(texts[i] for i in range(len(hidden)))


def _names(fields: Fields) -> tuple[str, ...]:
    """Names of elements to leave alone."""
    given = fields.get("ignore_tags")
    if given in (None, "", []):
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
    place = begun = depth = 0
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
            parts += text[place:begun], mark
            place = match.end()
    return "".join([*parts, text[place:]]), elements


def with_elements(text: str, elements: Mapping[str, str]) -> str:
    """A text with the elements back in their places."""
    for mark, element in elements.items():
        text = text.replace(mark, element)
    return text


def error(status: int, message: str, kind: str) -> dict[str, str]:
    """The shape of DeepL's errors."""
    return {"message": message}


DIALECT = Dialect("deepl", lambda service: DeepL(service).endpoints(), error, ("/v2/",))
