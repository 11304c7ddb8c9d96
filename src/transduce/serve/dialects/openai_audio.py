"""Transcriptions of OpenAI's API: the text of a recording, subtitles, segments, words."""

from __future__ import annotations

import math
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakSet

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from transduce.serve.batches import ToTranscribe
from transduce.serve.calls import Call, watched
from transduce.serve.dialects.choice import choose_model
from transduce.serve.dialects.dialect import Endpoint
from transduce.serve.dialects.events import event, streamed
from transduce.serve.dialects.openai_errors import error
from transduce.serve.errors import busy, invalid
from transduce.serve.requests import Fields
from transduce.serve.service import Service
from transduce.serve.settings import FORM_BYTES
from transduce.text.wrapping import joined_lines

if TYPE_CHECKING:
    from transduce.tasks.speech.segments import Segment

FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
GRANULARITIES = ("segment", "word")
Task = Literal["transcribe", "translate"]
MOST_BYTES = 200_000_000
"""Size of all requests in progress, which are in memory."""
FRAMES_A_SECOND = 100
"""Unit of `seek`."""


@dataclass(frozen=True, eq=False)
class Reserved:
    """Memory of one request, until nothing refers to it any more."""

    n_bytes: int


@dataclass(frozen=True)
class TranscriptionRequest:
    """A checked request to transcribe."""

    reserved: Reserved
    model: str
    given: ToTranscribe
    form: str
    granularities: tuple[str, ...]
    stream: bool


def read_transcription(fields: Fields, reserved: Reserved, task: Task) -> TranscriptionRequest:
    """The fields of a request."""
    audio = fields.file("file").data
    form = fields.text("response_format", "json")
    if form not in FORMATS:
        raise invalid(f"response_format {form!r} is none of {', '.join(FORMATS)}")
    wanted = [
        value
        for name in ("timestamp_granularities[]", "timestamp_granularities")
        if fields.get(name) not in (None, "", [])
        for value in fields.texts(name)
    ]
    for value in wanted:
        if value not in GRANULARITIES:
            raise invalid(f"timestamp_granularities: {value!r} is neither segment nor word")
    stream = fields.text("stream", "false").lower()
    if stream not in ("true", "false"):
        raise invalid("stream is not true or false")
    granularities = tuple(wanted) or ("segment",)
    model = fields.text("model")
    given = ToTranscribe(audio, task, fields.text("language", ""), fields.text("prompt", ""))
    return TranscriptionRequest(reserved, model, given, form, granularities, stream == "true")


class Transcriptions:
    """Handler of /v1/audio/transcriptions and /v1/audio/translations.

    read_fields: reads a request of a maximum number of bytes, and checks its key.
    """

    def __init__(
        self, service: Service, read_fields: Callable[[Request, int], Awaitable[Fields]]
    ) -> None:
        self._service = service
        self._read_fields = read_fields
        self._reserved: WeakSet[Reserved] = WeakSet()

    async def transcribe(self, request: Request) -> Response:
        """POST /v1/audio/transcriptions."""
        return await self._respond(request, "transcribe")

    async def translate(self, request: Request) -> Response:
        """POST /v1/audio/translations."""
        return await self._respond(request, "translate")

    async def _respond(self, request: Request, task: Task) -> Response:
        service = self._service
        most = FORM_BYTES + service.settings.max_audio_bytes
        reserved = self._reserve(request.headers.get("content-length", ""), most)
        order = read_transcription(await self._read_fields(request, most), reserved, task)
        run = choose_model(service, order.model).run
        if run is None or run.inputs != ("audio",):
            raise invalid(f"model {order.model!r} takes no recordings")
        if order.stream:
            return streamed(request, service, lambda call: self._events(order, call), error)
        segments: list[Segment] = []
        seconds = 0.0
        async with watched(request, service.settings.timeout) as call:
            async for part in service.transcribe(order.model, order.given, call):
                if isinstance(part, float):
                    seconds = part
                else:
                    segments.append(part)
        return self._answer(order, segments, seconds)

    def endpoints(self) -> list[Endpoint]:
        """Both endpoints."""
        asked = {
            "file*": "recording, in a multipart form",
            "model*": "name from /v1/models",
            "prompt": "text before the recording, for Whisper models",
            "response_format": ", ".join(FORMATS),
            "timestamp_granularities[]": "segment, word",
            "stream": "true for server-sent events",
        }
        spoken = {"language": "code of the spoken language, for Whisper models", **asked}
        path, post = "/v1/audio", ("POST",)
        return [
            Endpoint(
                f"{path}/transcriptions", self.transcribe, post, "Transcribe a recording", spoken
            ),
            Endpoint(f"{path}/translations", self.translate, post, "Translate a recording", asked),
        ]

    def _reserve(self, length: str, most: int) -> Reserved:
        """Memory for a request of a declared length.  Raises RequestError 429 for too much."""
        size = min(most, int(length)) if length.isascii() and length.isdigit() else most
        if sum(one.n_bytes for one in self._reserved) + size > MOST_BYTES:
            raise busy("too many recordings are waiting")
        reserved = Reserved(size)
        self._reserved.add(reserved)
        return reserved

    def _answer(
        self, order: TranscriptionRequest, segments: list[Segment], seconds: float
    ) -> Response:
        from transduce.tasks.speech.segments import written

        text = joined_lines([one.text for one in segments])
        if order.form == "text":
            return PlainTextResponse(f"{text}\n")
        if order.form in ("srt", "vtt"):
            form: Literal["srt", "vtt"] = "srt" if order.form == "srt" else "vtt"
            words = "word" in order.granularities
            return PlainTextResponse("".join(written(segments, form, "", words)))
        usage = {"type": "duration", "seconds": math.ceil(seconds)}
        answer: dict[str, Any] = {"text": text, "usage": usage}
        if order.form == "verbose_json":
            spoken = next((one.language for one in segments), "") or "unknown"
            answer |= {"task": order.given.task, "language": spoken, "duration": seconds}
            if "segment" in order.granularities:
                answer["segments"] = [
                    self._segment(order.model, number, one) for number, one in enumerate(segments)
                ]
            if "word" in order.granularities:
                answer["words"] = [
                    {"word": word.text, "start": word.start, "end": word.end}
                    for one in segments
                    for word in one.words
                ]
        return JSONResponse(answer)

    def _segment(self, model: str, number: int, segment: Segment) -> dict[str, Any]:
        """A segment; tokens are left out, and no_speech_prob is 0, since silence is no segment."""
        n_tokens = self._service.count_tokens(model, [segment.text], written=True)
        data = segment.text.encode()
        return {
            "id": number,
            "seek": round(segment.start * FRAMES_A_SECOND),
            "start": segment.start,
            "end": segment.end,
            "text": segment.text,
            "tokens": [],
            "temperature": 0.0,
            "avg_logprob": segment.score / max(1, n_tokens),
            "compression_ratio": len(data) / len(zlib.compress(data)),
            "no_speech_prob": 0.0,
        }

    async def _events(self, order: TranscriptionRequest, call: Call) -> AsyncIterator[str]:
        """Server-sent events: a part of the text for each segment, then all of it."""
        text = ""
        async for part in self._service.transcribe(order.model, order.given, call):
            if isinstance(part, float):
                continue
            longer = joined_lines([text, part.text])
            yield event({"type": "transcript.text.delta", "delta": longer[len(text) :]})
            text = longer
        yield event({"type": "transcript.text.done", "text": text})
