"""Transcriptions of OpenAI's API: the text of a recording, subtitles, segments, words."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from transduce.serve.calls import SHORTER_RECORDING, Call, watched
from transduce.serve.dialects.choice import choose_model
from transduce.serve.dialects.dialect import POST, Endpoint
from transduce.serve.dialects.events import event, streamed
from transduce.serve.dialects.openai_errors import error
from transduce.serve.errors import invalid
from transduce.serve.requests import Fields
from transduce.serve.service import Service
from transduce.serve.settings import AUDIO_BYTES
from transduce.serve.worker import AUDIO, ToTranscribe
from transduce.text.wrapping import joined_lines

if TYPE_CHECKING:
    from transduce.tasks.speech.segments import Segment

FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
GRANULARITIES = ("segment", "word")
Task = Literal["transcribe", "translate"]
FRAMES_A_SECOND = 100
"""Unit of `seek`."""


@dataclass(frozen=True)
class TranscriptionRequest:
    """A checked request to transcribe."""

    model: str
    recording: ToTranscribe
    form: str
    granularities: tuple[str, ...]
    stream: bool


def read_transcription(fields: Fields, task: Task) -> TranscriptionRequest:
    """The fields of a request."""
    audio = fields.file("file").content
    form = fields.choice("response_format", FORMATS)
    granularities = _repeated(fields, "timestamp_granularities")
    for text in granularities:
        if text not in GRANULARITIES:
            raise invalid(f"timestamp_granularities: {text!r} is neither segment nor word")
    stream = fields.text("stream", "false").lower()
    if stream not in ("true", "false"):
        raise invalid("stream is not true or false")
    words = form in ("srt", "vtt") or "word" in granularities
    language, prompt = fields.text("language", ""), fields.text("prompt", "")
    hotwords = tuple(_repeated(fields, "hotwords"))
    recording = ToTranscribe(audio, task, language, prompt, words, hotwords)
    return TranscriptionRequest(
        fields.text("model"),
        recording,
        form,
        tuple(granularities) or ("segment",),
        stream == "true",
    )


def _repeated(fields: Fields, name: str) -> list[str]:
    """Texts of a field of a form, under either of its names."""
    names = [each for each in (f"{name}[]", name) if fields.get(each) not in (None, "", [])]
    return [text for each in names for text in fields.texts(each)]


class Transcriptions:
    """Handlers of /v1/audio/transcriptions and /v1/audio/translations."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def transcribe(self, request: Request, fields: Fields) -> Response:
        """Transcribe a recording."""
        return await self._respond(request, read_transcription(fields, "transcribe"))

    async def translate(self, request: Request, fields: Fields) -> Response:
        """Translate a recording."""
        return await self._respond(request, read_transcription(fields, "translate"))

    async def _respond(self, request: Request, order: TranscriptionRequest) -> Response:
        service = self._service
        run = choose_model(service, order.model).run
        if run is None or run.inputs != AUDIO:
            raise invalid(f"model {order.model!r} takes no recordings")
        if order.stream:
            return streamed(request, service, lambda call: self._events(order, call), error)
        segments: list[Segment] = []
        seconds = 0.0
        async with watched(request, service.settings.timeout, SHORTER_RECORDING) as call:
            async for part in service.transcribe(order.model, order.recording, call):
                if isinstance(part, float):
                    seconds = part
                else:
                    segments.append(part)
        return self._answer(order, segments, seconds)

    def endpoints(self) -> list[Endpoint]:
        """Both endpoints."""
        fields = {
            "file*": "recording, in a multipart form",
            "model*": "name from /v1/models",
            "prompt": "text before the recording, for Whisper models",
            "hotwords[]": "words to favour, such as names; may be repeated",
            "response_format": ", ".join(FORMATS),
            "timestamp_granularities[]": "segment, word",
            "stream": "true for server-sent events",
        }
        spoken = {"language": "code of the spoken language, for Whisper models", **fields}
        path = "/v1/audio"
        return [
            Endpoint(
                f"{path}/transcriptions", self.transcribe, POST, spoken, max_bytes=AUDIO_BYTES
            ),
            Endpoint(f"{path}/translations", self.translate, POST, fields, max_bytes=AUDIO_BYTES),
        ]

    def _answer(
        self, order: TranscriptionRequest, segments: list[Segment], seconds: float
    ) -> Response:
        from transduce.tasks.speech.segments import written

        text = joined_lines([segment.text for segment in segments])
        if order.form == "text":
            return PlainTextResponse(f"{text}\n")
        if order.form in ("srt", "vtt"):
            form: Literal["srt", "vtt"] = "srt" if order.form == "srt" else "vtt"
            words = "word" in order.granularities
            return PlainTextResponse("".join(written(segments, form, "", words)))
        usage = {"type": "duration", "seconds": math.ceil(seconds)}
        answer: dict[str, Any] = {"text": text, "usage": usage}
        if order.form == "verbose_json":
            spoken = next((segment.language for segment in segments), "") or "unknown"
            answer |= {"task": order.recording.task, "language": spoken, "duration": seconds}
            if "segment" in order.granularities:
                answer["segments"] = [
                    self._segment(number, segment) for number, segment in enumerate(segments)
                ]
            if "word" in order.granularities:
                answer["words"] = [
                    {"word": word.text, "start": word.start, "end": word.end}
                    for segment in segments
                    for word in segment.words
                ]
        return JSONResponse(answer)

    def _segment(self, number: int, segment: Segment) -> dict[str, Any]:
        """A segment; tokens are left out, and no_speech_prob is 0 of a model without a token for
        it."""
        from transduce.tasks.speech.guards import compression

        return {
            "id": number,
            "seek": round(segment.start * FRAMES_A_SECOND),
            "start": segment.start,
            "end": segment.end,
            "text": segment.text,
            "tokens": [],
            "temperature": segment.temperature,
            "avg_logprob": segment.log_prob,
            "compression_ratio": compression(segment.text),
            "no_speech_prob": segment.no_speech or 0.0,
        }

    async def _events(self, order: TranscriptionRequest, call: Call) -> AsyncIterator[str]:
        """Server-sent events: a part of the text for each segment, then all of it."""
        text = ""
        async for part in self._service.transcribe(order.model, order.recording, call):
            if isinstance(part, float):
                continue
            longer = joined_lines([text, part.text])
            yield event({"type": "transcript.text.delta", "delta": longer[len(text) :]})
            text = longer
        yield event({"type": "transcript.text.done", "text": text})
