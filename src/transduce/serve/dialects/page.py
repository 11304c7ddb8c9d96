"""Routes of the page: its files, live translation, words, alternatives, explanations.

Errors are {"error": {"message", "kind"}}; of an explanation, a small page.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import mimetypes
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from transduce.errors import SettingError, TransduceError
from transduce.localise.checks import Glossary, Terms, no_glossary
from transduce.serve.calls import (
    SHORTER_RECORDING,
    Call,
    RequestError,
    bounded,
    invalid,
    unavailable,
    watched,
)
from transduce.serve.dialects.dialect import (
    POST,
    Dialect,
    Endpoint,
    Handler,
    event,
    long_answer,
    streamed,
)
from transduce.serve.dialects.native import Native
from transduce.serve.queue import check_answers
from transduce.serve.requests import Fields, missing
from transduce.serve.service import Service
from transduce.serve.translator import last_event
from transduce.serve.worker import AUDIO
from transduce.text.scripts import joined_lines

if TYPE_CHECKING:
    from transduce.explain.parts import KnockOut


MAX_TERMS = 200
ALTERNATIVES = 5
LEAST_SHARE = 0.002
"""Probability of a token that is tried in the place of a word."""
LEAST_LOG_PROB = 7.0
"""Log-probability that an alternative may lie below the best."""


class LanguagePair(NamedTuple):
    """Languages and glossary of a request."""

    source: str
    target: str
    glossary: Glossary = no_glossary


def glossary_of(fields: Fields) -> Glossary:
    """The glossary of a request, whose terms count in any case; blank terms are left out."""
    pairs = fields.pairs("glossary")
    if len(pairs) > MAX_TERMS:
        raise invalid(f"glossary has {len(pairs)} entries; at most {MAX_TERMS}")
    stripped = [(source.strip(), target.strip()) for source, target in pairs]
    return Terms({s: t for s, t in stripped if s and t}, str.lower).constraints


async def live_translation(
    service: Service, text: str, pair: LanguagePair, call: Call
) -> AsyncIterator[dict[str, Any]]:
    """Events: {"text"} with the next part, {"sentence"} at the end of each, and at the end
    {"done"}, with what is left "untranslated" and parts that are "unknown" to the model.

    A sentence has its "source" and its "output", except where the text goes through a pivot; for
    an untranslated sentence its source stands, and "withdrawn" is the text to take back.  The
    glossary applies to sentences with its terms, in a direct translation only.

    service: with its runs.  pair: languages and glossary.  call: of the request.
    """
    ends = []
    direct = len(service.path(pair.source, pair.target)) == 1
    async for part in service.stream(text, *pair[:2], call, pair.glossary):
        if part.text:
            yield {"text": part.text}
        if part.is_end:
            ends.append(part)
        if part.record is not None:
            sentence = {"source": part.record.source, "output": part.record.target}
            if direct:
                yield {"sentence": sentence, "withdrawn": part.withdrawn}
    yield last_event(ends) | service.via(pair.source, pair.target)


async def words_of(
    service: Service, pairs: Sequence[tuple[str, str]], pair: LanguagePair, call: Call
) -> list[dict[str, Any] | None]:
    """Words of sentences and of their translations; None for a pair that cannot be shown.

    service: with its runs.  pairs: (sentence, translation).  call: of the request.  pair:
    languages.
    """
    for side in zip(*pairs, strict=True):
        service.check_size(side)
    name, tag = service.direct(pair.source, pair.target)
    rows = [(*both, tag) for both in pairs]
    answers = await service.queue(name).observe(rows, lambda run, row: run.words(*row), call)
    return await call.in_thread(
        lambda: [
            None if isinstance(each, TransduceError) else _page_shown(each) for each in answers
        ]
    )


def _page_shown(words: Any) -> dict[str, Any]:
    return {
        "source": words.source,
        "target": words.target,
        "probabilities": words.probabilities.round(4).tolist(),
        "attention": None if words.attention is None else words.attention.round(3).tolist(),
    }


async def alternatives_of(
    service: Service, sentence: str, output: str, word: int, pair: LanguagePair, call: Call
) -> list[str]:
    """Other translations of a sentence that equal `output` before one of its words, likeliest
    first.

    They are the n-best list after the words before, and the best output after each likely token in
    the place of the word.  Raises RequestError 400 without such a word.

    service: with its runs.  pair: languages and glossary.  call: of the request.
    """
    service.check_size([sentence, output])
    name, tag = service.direct(pair.source, pair.target)
    queue = await service.present(name, call)
    rows = [(sentence, output, tag)]
    (words,) = await queue.observe(rows, lambda run, row: run.words(*row), call)
    check_answers([words])
    if not 0 <= word < len(words.target):
        raise invalid(f"there is no word {word}")
    before = output[: words.target[word][0]].rstrip()
    rivals = [prefix for prefix, share in words.rivals(word) if share >= LEAST_SHARE]
    fixed: dict[str, Any] = {"method": "beam", "minimum_risk": "none"}
    if phrases := pair.glossary(sentence):
        fixed["constraints"] = phrases
    settings = [
        {"prefix": before, "n_best": ALTERNATIVES},
        *({"prefix": prefix, "n_best": 1} for prefix in rivals[:ALTERNATIVES]),
    ]
    recipe = queue.options
    options = [bounded(recipe, {**fixed, **setting}) for setting in settings]
    answers = await queue.submit([tag + sentence] * len(options), options, call)
    translations = [answer for answer in answers if not isinstance(answer, TransduceError)]
    candidates = [candidate for answer in translations for candidate in answer.candidates]
    return _likeliest({c.text: c.log_prob for c in candidates}, output)


def _likeliest(log_probs: dict[str, float], output: str) -> list[str]:
    least = max(log_probs.values(), default=0.0) - LEAST_LOG_PROB
    ranked = sorted(log_probs, key=lambda text: -log_probs[text])
    return [text for text in ranked if text != output and log_probs[text] >= least][:ALTERNATIVES]


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src blob:; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'self'"
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


class Page(Dialect):
    """Handlers over a service."""

    prefixes = ("/page/",)
    error = staticmethod(Native.error)

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._files = {
            file.name: file.read_bytes()
            for file in (resources.files("transduce.serve.page") / "static").iterdir()
            if file.is_file()
        }

    async def index(self, request: Request, fields: Fields) -> Response:
        """The page."""
        return self._file("index.html", request)

    async def static(self, request: Request, fields: Fields) -> Response:
        """Files of the page."""
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

    async def translate(self, request: Request, fields: Fields) -> Response:
        """Translate a text with its sentences, streamed as server-sent events."""
        service = self.service
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
        pair = LanguagePair(source, target, glossary_of(fields))
        path = service.path(source, target)
        if path and not service.ready:
            raise unavailable("the server is loading")

        async def events(call: Call) -> AsyncIterator[str]:
            if first is not None:
                yield event({"detected": first})
            async for part in live_translation(service, text, pair, call):
                yield event(part)

        return streamed(request, service, events, self.error)

    async def words(self, request: Request, fields: Fields) -> Response:
        """Words of translations: probability and attention."""
        service = self.service
        pairs = fields.pairs("pairs")
        if not pairs:
            raise missing("pairs")
        async with watched(request, service.settings.timeout) as call:
            words = await words_of(service, pairs, self._pair(fields), call)
        return await long_answer({"words": words})

    async def alternatives(self, request: Request, fields: Fields) -> Response:
        """Other translations of a sentence from a word on."""
        service = self.service
        text, output = fields.text("q"), fields.text("output")
        word = fields.number("word", 0, len(output))
        pair = self._pair(fields)
        async with watched(request, service.settings.timeout) as call:
            texts = await alternatives_of(service, text, output, word, pair, call)
        return JSONResponse({"alternatives": texts})

    async def explanation(self, request: Request, fields: Fields) -> Response:
        """Explain an answer of a run, by chosen options, as a page."""
        service = self.service
        texts = [text.replace("\r\n", "\n") for text in fields.texts("q")]  # as forms send them
        settings = _options(fields)
        if sum(map(len, (*texts, settings.get("prefix", "")))) > MAX_EXPLAINED:
            raise invalid(f"an explanation takes at most {MAX_EXPLAINED} characters", "too_large")
        name = fields.text("model", "")
        if not name:
            name, tag = service.direct(*self._pair(fields)[:2])
            texts = [tag + texts[0]]
        without, live = _left_out(fields), bool(fields.text("live", ""))
        async with watched(request, service.settings.timeout) as call:
            queue = await service.present(name, call)
            options = bounded(queue.options, settings) if settings else None
            (page,) = await queue.observe(
                [texts], lambda run, parts: run.explain(parts, options, without, live), call
            )
        check_answers([page])
        return HTMLResponse(page, headers=HEADERS | {"Content-Security-Policy": policy_of(page)})

    async def speech(self, request: Request, fields: Fields) -> Response:
        """Transcribe sound that goes on: lines that are final, certain words, and a draft."""
        from transduce.speech.agreement import OpenSpeech

        service = self.service
        sound, name = fields.file("file").content, fields.text("model")
        last = fields.choice("last", ("false", "true")) == "true"
        try:
            state = OpenSpeech.parse(json.loads(fields.text("state", "{}")))
        except (ValueError, RecursionError, SettingError):
            raise invalid("state is not one of an answer; leave it out at first") from None
        async with watched(request, service.settings.timeout, SHORTER_RECORDING) as call:
            queue = await service.present(name, call)
            if queue.inputs != AUDIO:
                raise invalid(f"model {name!r} takes no recordings")
            (answer,) = await queue.observe(
                [sound],
                lambda run, _: run.transcribe_so_far(sound, state, last, call.over),
                call,
            )
        check_answers([answer])
        segments, state = answer
        final = joined_lines([segment.text for segment in segments])
        parts = {"final": final, "certain": state.text, "draft": state.draft}
        return JSONResponse({**parts, "state": state._asdict()})

    def _pair(self, fields: Fields) -> LanguagePair:
        language = self.service.language
        source, target = language(fields.text("source")), language(fields.text("target"))
        return LanguagePair(source, target, glossary_of(fields))

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        pair = {"source*": "language code", "target*": "language code"}
        terms = {"glossary": "list of pairs: term of the source, its translation"}
        alternatives = {
            "q*": "sentence",
            "output*": "its translation",
            "word": "number of a word in it",
        }
        explanation = {
            "q*": "text",
            "model": "name, instead of languages",
            **dict.fromkeys(OPTIONS, ""),
            "without_head": "attention heads to leave out, NAME:HEAD, between spaces",
            "without_token": "numbers of source tokens to hide, between spaces",
            "live": "any text for a page that computes, with the model inside",
        }
        words = {"pairs*": "list of pairs: sentence, translation"}
        settings = self.service.settings
        twice = 2 * settings.max_body_bytes  # sentences with their translations
        speech = {
            "file*": "sound, in a multipart form; of what is done the last 5 s suffice",
            "model*": "name of a run that reads recordings",
            "state": "JSON of the answer before; `done` counts from the beginning of the sound",
            "last": "true for sound that has ended",
        }

        def post(name: str, handler: Handler, fields: Mapping[str, str]) -> Endpoint:
            return Endpoint(f"/page/{name}", handler, POST, fields, max_bytes=twice)

        return [
            Endpoint("/", self.index, public=True),
            Endpoint("/page/{name}", self.static, public=True),
            post("translate", self.translate, {"q*": "text"} | pair | terms),
            post("words", self.words, words | pair),
            post("alternatives", self.alternatives, alternatives | pair | terms),
            replace(
                post("speech", self.speech, speech),
                max_bytes=settings.max_audio_bytes,
                too_large=settings.recording_limit,
            ),
            replace(post("explanation", self.explanation, explanation), error_page=error_page),
        ]


def error_page(fault: RequestError) -> Response:
    """An error in the frame of the explanation."""
    headers = HEADERS | fault.headers | {"Content-Security-Policy": "default-src 'none'"}
    message = MESSAGE.format(html.escape(fault.message))
    return HTMLResponse(message, fault.status, headers=headers)


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


def _options(fields: Fields) -> dict[str, Any]:
    options = {}
    for name, kind in OPTIONS.items():
        value = fields.get(name)
        if value not in (None, ""):
            try:
                if not isinstance(value, str | int | float):
                    raise ValueError
                options[name] = kind(value)
            except (OverflowError, ValueError):
                raise invalid(f"{name} is not a number") from None
    return options


def _left_out(fields: Fields) -> KnockOut:
    """Heads and tokens that the form leaves out, between spaces or commas."""
    from transduce.explain.parts import KnockOut

    heads, tokens = (
        fields.text(name, "").replace(",", " ").split()
        for name in ("without_head", "without_token")
    )
    try:
        return KnockOut(tuple(heads), tuple(map(int, tokens)))
    except ValueError:
        raise invalid("without_token is not a list of numbers") from None
