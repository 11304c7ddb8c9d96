"""Routes of the page: its files, live translation, words, alternatives, explanations.

Errors are {"error": {"message", "kind"}}; of an explanation, a small page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import mimetypes
import re
from collections.abc import AsyncIterator, Callable
from importlib import resources
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from transduce.serve.batches import ToExplain
from transduce.serve.calls import Call, watched
from transduce.serve.dialects.dialect import Dialect, Endpoint
from transduce.serve.dialects.events import event, streamed
from transduce.serve.dialects.native import error
from transduce.serve.errors import RequestError, invalid, unavailable
from transduce.serve.limits import bounded
from transduce.serve.page.glossary import read_terms
from transduce.serve.page.live import Pair, alternatives_of, live_translation, words_of
from transduce.serve.queue import check_answers
from transduce.serve.requests import Fields, read_fields, texts_of
from transduce.serve.service import Service

if TYPE_CHECKING:
    from transduce.inspect.parts import KnockOut

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
OPTIONS: dict[str, Callable[[Any], Any]] = {
    "prefix": str,
    "method": str,
    "beam_size": int,
    "alpha": float,
    "temperature": float,
    "seed": int,
}
"""Decoding options of an explanation, which come as texts of a form."""
MAX_EXPLAINED = 1000
"""Characters: a search that is watched cannot be cancelled."""
MESSAGE = (
    '<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    "<title>transduce</title><p>{}</p>"
)


class Page:
    """Handlers over a service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._files = {
            file.name: file.read_bytes()
            for file in (resources.files("transduce.serve.page") / "static").iterdir()
            if file.is_file()
        }

    async def index(self, request: Request) -> Response:
        """GET /."""
        return self._file("index.html", request)

    async def static(self, request: Request) -> Response:
        """GET /page/NAME."""
        return self._file(request.path_params["name"], request)

    def _file(self, name: str, request: Request) -> Response:
        content = self._files.get(name)
        if content is None:
            raise RequestError(404, f"there is no file {name!r}", "not_found")
        tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        headers = {**HEADERS, "ETag": tag, "Content-Security-Policy": POLICY}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=mimetypes.guess_type(name)[0], headers=headers)

    async def translate(self, request: Request) -> Response:
        """POST /page/translate: the translation of a text as server-sent events."""
        service = self.service
        fields = await self._fields(request)
        text = fields.text("q")
        service.check_size([text])
        target = service.language(fields.text("target"))
        first: dict[str, Any] | None = None
        if fields.text("source").lower() == "auto":
            (best, *_) = [*service.detect([text]), None]
            source = target if best is None else best.language
            first = None if best is None else best._asdict()
        else:
            source = service.language(fields.text("source"))
        pair = Pair(source, target, read_terms(fields.get("glossary")))
        path = service.path(source, target)
        if path and not service.ready:
            raise unavailable("the server is loading")

        async def events(call: Call) -> AsyncIterator[str]:
            if first is not None:
                yield event({"detected": first})
            async for one in live_translation(service, text, pair, call):
                yield event(one)

        return streamed(request, service, events, error)

    async def words(self, request: Request) -> Response:
        """POST /page/words."""
        service = self.service
        fields = await self._fields(request)
        pairs = _pairs(fields.get("pairs"))
        async with watched(request, service.settings.timeout) as call:
            found = await words_of(service, pairs, self._pair(fields), call)
        return JSONResponse({"words": found})

    async def alternatives(self, request: Request) -> Response:
        """POST /page/alternatives."""
        service = self.service
        fields = await self._fields(request)
        text, output = fields.text("q"), fields.text("output")
        word = fields.number("word", 0, len(output))
        async with watched(request, service.settings.timeout) as call:
            found = await alternatives_of(service, text, output, word, self._pair(fields), call)
        return JSONResponse({"alternatives": found})

    async def explanation(self, request: Request) -> Response:
        """POST /page/explanation: the page of an answer of one run, by chosen options."""
        try:
            page = await self._explained(request)
        except RequestError as fault:
            message = MESSAGE.format(html.escape(fault.message))
            headers = HEADERS | fault.headers | {"Content-Security-Policy": "default-src 'none'"}
            return HTMLResponse(message, fault.status, headers=headers)
        return HTMLResponse(page, headers=HEADERS | {"Content-Security-Policy": policy_of(page)})

    async def _explained(self, request: Request) -> str:
        service = self.service
        fields = await self._fields(request)
        texts = [text.replace("\r\n", "\n") for text in fields.texts("q")]  # as forms send them
        given = _options(fields)
        if sum(map(len, (*texts, given.get("prefix", "")))) > MAX_EXPLAINED:
            raise invalid(f"an explanation takes at most {MAX_EXPLAINED} characters", "too_large")
        if fields.get("model"):
            name = fields.text("model")
        else:
            pair = self._pair(fields)
            name, tag = service.direct(pair.source, pair.target)
            texts = [tag + texts[0]]
        queue = service.loaded(name)
        options = bounded(queue.loaded_run().options, given) if given else None
        async with watched(request, service.settings.timeout) as call:
            answer = await queue.explain(ToExplain(texts, _left_out(fields)), options, call)
        check_answers([answer])
        page: str = answer
        return page

    def _pair(self, fields: Fields) -> Pair:
        language = self.service.language
        source, target = language(fields.text("source")), language(fields.text("target"))
        return Pair(source, target, read_terms(fields.get("glossary")))

    async def _fields(self, request: Request) -> Fields:
        twice = 2 * self.service.settings.max_body_bytes  # sentences with their translations
        return await read_fields(request, self.service, max_bytes=twice)

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        post = ("POST",)
        key = {"api_key": "key, where the server needs one"}
        pair = {"source*": "language code", "target*": "language code"}
        terms = {"glossary": "list of pairs: term of the source, its translation"}
        return [
            Endpoint("/", self.index, summary="The page", public=True),
            Endpoint("/page/{name}", self.static, summary="Files of the page", public=True),
            Endpoint(
                "/page/translate",
                self.translate,
                post,
                "Translate a text with its sentences, streamed as server-sent events",
                {"q*": "text"} | pair | terms | key,
            ),
            Endpoint(
                "/page/words",
                self.words,
                post,
                "Words of translations: probability and attention",
                {"pairs*": "list of pairs: sentence, translation"} | pair | key,
            ),
            Endpoint(
                "/page/alternatives",
                self.alternatives,
                post,
                "Other translations of a sentence from a word on",
                {"q*": "sentence", "output*": "its translation", "word": "number of a word in it"}
                | pair
                | terms
                | key,
            ),
            Endpoint(
                "/page/explanation",
                self.explanation,
                post,
                "Explain an answer, as a page",
                {"q*": "text", "model": "name, instead of languages"}
                | dict.fromkeys(OPTIONS, "")
                | {
                    "without_head": "attention heads to leave out, NAME:HEAD, between spaces",
                    "without_token": "numbers of source tokens to hide, between spaces",
                },
            ),
        ]


def policy_of(page: str) -> str:
    """Content security policy that admits the scripts and styles of a self-contained page."""
    allowed = {
        name: " ".join(f"'sha256-{_digest(part)}'" for part in re.findall(pattern, page, re.DOTALL))
        for name, pattern in (
            ("script-src", "<script>(.*?)</script>"),
            ("style-src", "<style>(.*?)</style>"),
        )
    }
    rules = [f"{name} {hashes}" for name, hashes in allowed.items()]
    rules += ["default-src 'none'", "img-src data:", "base-uri 'none'", "frame-ancestors 'self'"]
    return "; ".join(rules)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _pairs(given: object) -> list[tuple[str, str]]:
    """Pairs of texts.  Raises RequestError 400 for others."""
    rows = given if isinstance(given, list) and given else [None]
    found = []
    for row in rows:
        texts = texts_of(row)
        if texts is None or len(texts) != 2:
            raise invalid("pairs is not a list of pairs of texts")
        found.append((texts[0], texts[1]))
    return found


def _options(fields: Fields) -> dict[str, Any]:
    """Decoding options that the form has."""
    found = {}
    for name, kind in OPTIONS.items():
        value = fields.get(name)
        if value not in (None, ""):
            try:
                if not isinstance(value, str | int | float):
                    raise ValueError
                found[name] = kind(value)
            except (OverflowError, ValueError):
                raise invalid(f"{name} is not a number") from None
    return found


def _left_out(fields: Fields) -> KnockOut:
    """Heads and tokens that the form leaves out, between spaces or commas."""
    from transduce.inspect.parts import KnockOut

    heads, tokens = (
        fields.text(name, "").replace(",", " ").split()
        for name in ("without_head", "without_token")
    )
    try:
        return KnockOut(tuple(heads), tuple(map(int, tokens)))
    except ValueError:
        raise invalid("without_token is not a list of numbers") from None


DIALECT = Dialect("page", lambda service: Page(service).endpoints(), error, ("/page/",))
