"""Recordings of OpenAI's API: transcriptions, and speech in the usual formats."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from transduce.errors import needs_extra
from transduce.serve.calls import SHORTER_RECORDING, Call, invalid, watched
from transduce.serve.dialects.dialect import POST, Endpoint, event, streamed
from transduce.serve.dialects.openai_requests import choose_model, error
from transduce.serve.queue import check_answers
from transduce.serve.requests import Fields
from transduce.serve.service import Service
from transduce.serve.worker import AUDIO, ToTranscribe
from transduce.text.scripts import joined_lines

if TYPE_CHECKING:
    from transduce.speech.segments import Segment
    from transduce.speech.spoken import Speech


FORMATS = ("json", "text", "srt", "vtt", "verbose_json", "diarized_json")
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
    for text in _repeated(fields, "include"):
        raise invalid(f"include: {text!r} is not answered; leave it out")
    if _repeated(fields, "known_speaker_names"):
        raise invalid("known_speaker_names is not answered; leave it out")
    stream = fields.text("stream", "false").lower()
    if stream not in ("true", "false"):
        raise invalid("stream is not true or false")
    words = form in ("srt", "vtt", "diarized_json") or "word" in granularities
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
        name = usual_model(service, order.model, *RECOGNITION)
        order = replace(order, model=name)
        run = (await choose_model(service, name)).run
        if run is None or run.inputs != AUDIO:
            raise invalid(f"model {order.model!r} takes no recordings")
        if order.form == "diarized_json":
            if (encoder := service.settings.speakers) is None:
                raise invalid("diarized_json needs a server with --speakers ENCODER")
            order = replace(order, recording=order.recording._replace(speakers=encoder))
        if order.stream:
            events = partial(self._events, order)
            return streamed(request, service, events, error, SHORTER_RECORDING)
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
            "model*": "name from /v1/models, or whisper-1 for the first that takes recordings",
            "prompt": "text before the recording, for Whisper models",
            "hotwords[]": "words to favour, such as names; may be repeated",
            "response_format": ", ".join(FORMATS),
            "timestamp_granularities[]": "segment, word",
            "stream": "true for server-sent events",
        }
        spoken = {"language": "code of the spoken language, for Whisper models", **fields}
        path, settings = "/v1/audio", self._service.settings
        endpoints = [
            Endpoint(f"{path}/transcriptions", self.transcribe, POST, spoken),
            Endpoint(f"{path}/translations", self.translate, POST, fields),
        ]
        most, remedy = settings.max_audio_bytes, settings.recording_limit
        return [replace(each, max_bytes=most, too_large=remedy) for each in endpoints]

    def _answer(
        self, order: TranscriptionRequest, segments: list[Segment], seconds: float
    ) -> Response:
        from transduce.speech.segments import written

        dropped = [segment.fields() for segment in segments if segment.dropped]
        segments = [segment for segment in segments if segment.text]
        text = joined_lines([segment.text for segment in segments])
        if order.form == "text":
            return PlainTextResponse(f"{text}\n")
        if order.form in ("srt", "vtt"):
            form: Literal["srt", "vtt"] = "srt" if order.form == "srt" else "vtt"
            words = "word" in order.granularities
            return PlainTextResponse("".join(written(segments, form, "", words)))
        usage = {"type": "duration", "seconds": math.ceil(seconds)}
        answer: dict[str, Any] = {"text": text, "usage": usage}
        if order.form == "diarized_json":
            answer |= {"task": order.recording.task, "duration": seconds}
            answer["segments"] = [*map(_spoken, count(), segments)]
        if order.form == "verbose_json":
            spoken = next((segment.language for segment in segments), "") or "unknown"
            answer |= {"task": order.recording.task, "language": spoken, "duration": seconds}
            if "segment" in order.granularities:
                answer["segments"] = [
                    self._segment(number, segment) for number, segment in enumerate(segments)
                ]
            if dropped:
                answer["dropped"] = dropped
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
        from transduce.speech.guards import compression

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
        text, numbers = "", count()
        async for part in self._service.transcribe(order.model, order.recording, call):
            if isinstance(part, float) or not part.text:
                continue
            longer = joined_lines([text, part.text])
            if order.form == "diarized_json":
                yield event(_spoken(next(numbers), part))
            else:
                yield event({"type": "transcript.text.delta", "delta": longer[len(text) :]})
            text = longer
        yield event({"type": "transcript.text.done", "text": text})


def _spoken(number: int, segment: Segment) -> dict[str, Any]:
    """A segment with its speaker."""
    return {
        "type": "transcript.text.segment",
        "id": f"seg_{number}",
        "start": segment.start,
        "end": segment.end,
        "speaker": segment.speaker,
        "text": segment.text,
    }


SYNTHESIS = "speech-synthesis"
RECOGNITION = ("speech-recognition", "speech-translation")
USUAL = (
    "whisper-1",
    "gpt-4o-transcribe",
    "gpt-4o-mini-transcribe",
    "gpt-4o-transcribe-diarize",
    "tts-1",
    "tts-1-hd",
)
"""Names that clients have by default."""


def usual_model(service: Service, name: str, *tasks: str) -> str:
    """Name of the first model of a task, for a usual name of OpenAI's that no model has."""
    models = service.models()
    if name not in USUAL or any(model.name == name for model in models):
        return name
    return next((model.name for model in models if model.task in tasks), name)


class Form(NamedTuple):
    """A format: its container, the coding of samples, and the media type."""

    container: str
    coding: str
    media: str


FORMS = {
    "mp3": Form("MP3", "MPEG_LAYER_III", "audio/mpeg"),
    "opus": Form("OGG", "OPUS", "audio/ogg"),
    "flac": Form("FLAC", "PCM_16", "audio/flac"),
    "wav": Form("WAV", "PCM_16", "audio/wav"),
    "pcm": Form("RAW", "PCM_16", "audio/pcm"),
}
"""By `response_format`, the default first."""
PLAIN = ("wav", "pcm")
"""Formats that need no library."""
WAV_HEAD = 44
COMMON_RATE = 24_000
"""Samples a second that all formats take."""


class Speeches:
    """Handler of /v1/audio/speech."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def speak(self, request: Request, fields: Fields) -> Response:
        """Speak a text."""
        name = usual_model(self._service, fields.text("model"), SYNTHESIS)
        text = fields.text("input")
        form = fields.choice("response_format", tuple(FORMS))
        speed = _speed(fields)
        voice = fields.text("voice", "")
        fields.choice("stream_format", ("audio",))
        run = (await choose_model(self._service, name)).run
        if run is None or run.task != SYNTHESIS:
            raise invalid(f"model {name!r} does not speak")
        if not text.strip():
            raise invalid("input is blank")
        async with watched(request, self._service.settings.timeout) as call:
            speech = await self._service.speak(name, text, speed, voice, call)
            check_answers([speech])
            content = await call.in_thread(encoded_audio, speech, form)
        return Response(content, media_type=FORMS[form].media)

    def endpoints(self) -> list[Endpoint]:
        """The endpoint."""
        fields = {
            "model*": "name from /v1/models, or tts-1 for the first that speaks",
            "input*": "text to speak",
            "response_format": ", ".join(FORMS),
            "speed": "0.25 to 4, of models with durations",
            "voice": "speaker of a model with several; else ignored",
        }
        return [Endpoint("/v1/audio/speech", self.speak, POST, fields)]


def _speed(fields: Fields) -> float | None:
    """Divisor of the durations, also given as a text; None for the recipe's."""
    speed = fields.get("speed")
    if speed is None:
        return None
    with contextlib.suppress(ValueError):
        speed = float(speed) if isinstance(speed, str) else speed
    if isinstance(speed, bool) or not (isinstance(speed, int | float) and 0.25 <= speed <= 4):
        raise invalid("speed is not a number from 0.25 to 4")
    return speed


def encoded_audio(speech: Speech, form: str) -> bytes:
    """Bytes of a recording, at COMMON_RATE in a format that does not take its rate.

    Raises RequestError 400 for a format that needs a library which is missing.
    """
    if form in PLAIN:
        wav = speech.wav()
        return wav if form == "wav" else wav[WAV_HEAD:]
    try:
        import soundfile
    except ImportError:
        message = needs_extra(f"response_format {form}", "speech")
        raise invalid(f"{message}; wav and pcm need nothing") from None
    from transduce.speech.audio import resampled

    container, coding, _ = FORMS[form]
    for rate in (speech.rate, COMMON_RATE):
        blocks = resampled(iter([speech.samples]), speech.rate, rate)
        samples = np.concatenate([speech.samples[:0], *blocks])  # none of an empty speech
        file = io.BytesIO()
        with contextlib.suppress(soundfile.SoundFileError):
            soundfile.write(file, samples, rate, format=container, subtype=coding)
            return file.getvalue()
    raise invalid(f"response_format {form} does not take {speech.rate} samples a second")
