"""OpenAI's API, for its clients: models, chat, embeddings, transcriptions, speech.

A translation run is a model for each of its pairs, named like "de-en", and takes the last message
of the user, in which separators that a system message names stay.  A dialogue run takes all turns,
a language model continues the last message.
Errors are {"error": {"message", "type", "param", "code"}}.
"""

import asyncio
import base64
import itertools
import struct
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transduce.serve.calls import Call, invalid, watched
from transduce.serve.dialects.dialect import POST, Dialect, Endpoint, event, long_answer, streamed
from transduce.serve.dialects.openai_audio import Speeches, Transcriptions
from transduce.serve.dialects.openai_requests import (
    SAMPLING,
    ChatRequest,
    Choice,
    chat_prompt,
    choose_model,
    error,
    model_names,
    named_model,
    read_chat,
    split_at_separators,
)
from transduce.serve.queue import check_answers
from transduce.serve.requests import Fields
from transduce.serve.service import Service
from transduce.serve.translator import (
    Left,
    Part,
    is_finished,
    lasting,
    left_fields,
    left_of_parts,
    left_of_texts,
)
from transduce.serve.translator import answer as with_left

OWNER = "transduce"
HISTORY = ("history",)
CONTINUED = (("prompt",), HISTORY)
"""Inputs to continue, by the options of their runs."""


class Completion:
    """The answer to a chat request, whole or in parts.

    Raises RequestError for a model that writes no text.
    """

    def __init__(self, service: Service, order: ChatRequest, choice: Choice) -> None:
        self._service = service
        self._order = order
        self._choice = choice
        run = choice.run
        if run is not None and not run.decodes:
            raise invalid(f"model {order.model!r} writes no text; use /api/predict")
        self.prompt = chat_prompt(order.messages, run is not None and run.inputs == HISTORY)
        self.left: Left = ()
        self.via: dict[str, list[str]] = {}
        service.check_size([self.prompt])
        self.continues = run is not None and run.inputs in CONTINUED
        self._options = order.options if self.continues else {}
        if run is None:
            path = service.path(choice.source, choice.target)
            self.via = service.via(choice.source, choice.target)
            self._reader, self._writer = (service.direct(*pair)[0] for pair in (path[0], path[-1]))
        else:
            self._reader = self._writer = run.name
        self._limit = service.max_tokens(self._writer, self._options) if self.continues else None

    async def whole(self, call: Call) -> str:
        """The answer."""
        choice = self._choice
        if choice.run is None:
            pieces, separators = await self._pieces(call)
            texts = await self._service.translate(pieces, choice.source, choice.target, call)
            self.left = left_of_texts(texts)
            joined = zip((text.text for text in texts), (*separators, ""), strict=True)
            return "".join(itertools.chain.from_iterable(joined))
        answers = await self._service.predict(choice.run.name, [self.prompt], call, self._options)
        check_answers(answers)
        (answer,) = answers
        return str(getattr(answer, "continuation", answer.text))

    def parts(self, call: Call) -> AsyncIterator[str]:
        """The answer in parts, which joined equal the whole."""
        choice = self._choice
        if choice.run is None:
            return self._translated_parts(call)
        name = choice.run.name
        return self._service.stream_prediction(name, self.prompt, call, self._options)

    async def _translated_parts(self, call: Call) -> AsyncIterator[str]:
        """A translation in parts; whole with separators."""
        source, target, ends = self._choice.source, self._choice.target, list[Part]()
        _, separators = await self._pieces(call)
        if separators:
            yield await self.whole(call)
            return
        async for part in lasting(self._service.stream(self.prompt, source, target, call), ends):
            yield part
        self.left = left_of_parts(ends)

    async def _pieces(self, call: Call) -> tuple[list[str], list[str]]:
        return await call.in_thread(
            split_at_separators, self.prompt, self._order.messages, call.check
        )

    def finish_reason(self, text: str) -> str:
        """stop; length for a cut-off translation, and a continuation of as many tokens as it may
        have."""
        if self._limit is None:
            return "stop" if is_finished(self.left) else "length"
        return "length" if self._n_written(text) >= self._limit else "stop"

    def usage(self, text: str) -> dict[str, int]:
        """Tokens of the prompt and of an answer."""
        read = self._service.count_tokens(self._reader, [self.prompt])
        written = self._n_written(text)
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
        }

    def _n_written(self, text: str) -> int:
        return self._service.count_tokens(self._writer, [text], written=True)


class OpenAI(Dialect):
    """Handlers over a service."""

    prefixes = ("/v1/",)
    key_field = ""
    statuses: ClassVar = {"no_key": 401, "invalid_key": 401}
    error = staticmethod(error)

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._created = int(time.time())

    async def models(self, request: Request, fields: Fields) -> Response:
        """Models."""
        shown = [self._shown(name) for name in model_names(self.service)]
        return JSONResponse({"object": "list", "data": shown})

    async def model(self, request: Request, fields: Fields) -> Response:
        """A model."""
        name = request.path_params["name"]
        named_model(self.service, name)
        return JSONResponse(self._shown(name))

    async def chat(self, request: Request, fields: Fields) -> Response:
        """Answer or translate the last message."""
        order = read_chat(fields)
        chosen = await choose_model(self.service, order.model)
        completion = Completion(self.service, order, chosen)
        if not completion.continues:
            fields.disregard(*SAMPLING)
        identity = f"chatcmpl-{uuid.uuid4().hex}"
        head = {"id": identity, "created": int(time.time()), "model": order.model}
        if order.stream:
            return streamed(
                request,
                self.service,
                lambda call: self._events(completion, head, order.usage, call),
                self.error,
            )
        async with watched(request, self.service.settings.timeout) as call:
            text = await completion.whole(call)
            finish = await call.in_thread(completion.finish_reason, text)
            usage = await call.in_thread(completion.usage, text)
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None}
        choice["finish_reason"] = finish
        answer = {**head, "object": "chat.completion", "choices": [choice]}
        return with_left({**answer, **completion.via, "usage": usage}, completion.left)

    async def embeddings(self, request: Request, fields: Fields) -> Response:
        """Embed texts."""
        service = self.service
        name = fields.text("model")
        run = (await choose_model(service, name)).run
        if run is None or run.task != "embedding":
            raise invalid(f"model {name!r} gives no embeddings")
        texts = fields.texts("input")
        encoding = fields.choice("encoding_format", ("float", "base64"))
        for number, text in enumerate(texts, 1):
            if not text.strip():
                raise invalid(f"input {number} is blank")
        async with watched(request, service.settings.timeout) as call:
            answers = await service.predict(name, texts, call)
            read = await call.in_thread(service.count_tokens, name, texts)
        check_answers(answers)
        vectors = [answer.embedding for answer in answers]
        if fields.get("dimensions") not in (None, len(vectors[0])):
            raise invalid(f"dimensions is not {len(vectors[0])}, the size of the embeddings")
        rows = [
            {"object": "embedding", "index": i, "embedding": _encoded(vector, encoding)}
            for i, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": read, "total_tokens": read}
        content = {"object": "list", "data": rows, "model": name, "usage": usage}
        return await long_answer(content)

    async def translations(self, request: Request, fields: Fields) -> Response:
        """Translate texts between languages, as vLLM proposes it; `via` names the languages
        between."""
        service = self.service
        texts = fields.texts("input")
        target = service.language(fields.text("target_language"))
        named = fields.text("source_language", "")
        detected = [] if named else service.detect(texts)
        if not named and not detected:
            raise invalid("the language of input is unknown; name source_language")
        source = service.language(named or detected[0].language)
        async with watched(request, service.settings.timeout) as call:
            translated = await service.translate(texts, source, target, call)
        data = [{"index": i, "text": answer.text} for i, answer in enumerate(translated)]
        languages = {"source_language": source, "target_language": target, "via": []}
        languages |= service.via(source, target)
        content = {"object": "list", "created": int(time.time()), **languages, "data": data}
        return with_left(content, left_of_texts(translated))

    def endpoints(self) -> list[Endpoint]:
        """All endpoints."""
        model = {"model*": "name from /v1/models"}
        chat = {
            "messages*": "list of objects with role and content",
            "stream": "true for server-sent events",
            "stream_options": "object; include_usage: true for the number of tokens",
            "max_tokens": "most tokens of a continuation or reply",
            "stop": "text, or list of texts, before which a continuation or reply ends",
            "temperature": "of sampling; 0 for greedy search",
            "top_p": "of sampling",
            "seed": "of sampling",
        }
        embeddings = {"input*": "text, or list of texts", "encoding_format": "float or base64"}
        translations = {
            "input*": "text, or list of texts",
            "target_language*": "language code",
            "source_language": "language code; detected without it",
        }
        return [
            Endpoint("/v1/models", self.models),
            Endpoint("/v1/models/{name}", self.model),
            Endpoint("/v1/chat/completions", self.chat, POST, model | chat),
            Endpoint("/v1/embeddings", self.embeddings, POST, model | embeddings),
            Endpoint("/v1/translations", self.translations, POST, translations),
            *Transcriptions(self.service).endpoints(),
            *Speeches(self.service).endpoints(),
        ]

    async def _events(
        self, completion: Completion, head: Mapping[str, Any], usage: bool, call: Call
    ) -> AsyncIterator[str]:
        text = ""

        def chunk(delta: Mapping[str, str], finish: str | None = None) -> str:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return shown([choice])

        def shown(choices: Sequence[object], counted: object = None) -> str:
            more: dict[str, object] = {**completion.via, **({"usage": counted} if usage else {})}
            more |= left_fields(completion.left)
            return event({**head, "object": "chat.completion.chunk", "choices": choices, **more})

        yield chunk({"role": "assistant", "content": ""})
        async for part in completion.parts(call):
            text += part
            yield chunk({"content": part})
        # The call has ended with its last part, and would end a thread of its own.
        yield chunk({}, await asyncio.to_thread(completion.finish_reason, text))
        if usage:
            yield shown([], await asyncio.to_thread(completion.usage, text))
        yield "data: [DONE]\n\n"

    def _shown(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._created, "owned_by": OWNER}


def _encoded(vector: Sequence[float], encoding: str) -> list[float] | str:
    """A vector as numbers, or as little-endian float32 in base64."""
    if encoding == "float":
        return list(vector)
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
