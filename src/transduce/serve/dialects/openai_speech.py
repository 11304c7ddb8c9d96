"""Speech of OpenAI's API: a text as a recording, in the usual formats."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from transduce.errors import needs_extra
from transduce.serve.calls import watched
from transduce.serve.dialects.choice import choose_model
from transduce.serve.dialects.dialect import POST, Endpoint
from transduce.serve.errors import invalid
from transduce.serve.queue import check_answers
from transduce.serve.requests import Fields
from transduce.serve.service import Service

if TYPE_CHECKING:
    from transduce.tasks.speech.spoken import Speech

SYNTHESIS = "speech-synthesis"


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


class Speeches:
    """Handler of /v1/audio/speech."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def speak(self, request: Request, fields: Fields) -> Response:
        """Speak a text."""
        name, text = fields.text("model"), fields.text("input")
        form = fields.choice("response_format", tuple(FORMS))
        speed = _speed(fields)
        voice = fields.text("voice", "")
        fields.choice("stream_format", ("audio",))
        run = choose_model(self._service, name).run
        if run is None or run.task != SYNTHESIS:
            raise invalid(f"model {name!r} does not speak")
        if not text.strip():
            raise invalid("input is blank")
        async with watched(request, self._service.settings.timeout) as call:
            speech = await self._service.speak(name, text, speed, voice, call)
            check_answers([speech])
            content = await call.in_thread(encoded, speech, form)
        return Response(content, media_type=FORMS[form].media)

    def endpoints(self) -> list[Endpoint]:
        """The endpoint."""
        fields = {
            "model*": "name from /v1/models",
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


def encoded(speech: Speech, form: str) -> bytes:
    """Bytes of a recording.  Raises RequestError 400 for a format that the rate rules out, or that
    needs a library which is missing."""
    if form in PLAIN:
        wav = speech.wav()
        return wav if form == "wav" else wav[WAV_HEAD:]
    try:
        import soundfile
    except ImportError:
        message = needs_extra(f"response_format {form}", "speech")
        raise invalid(f"{message}; wav and pcm need nothing") from None
    container, coding, _ = FORMS[form]
    file = io.BytesIO()
    try:
        soundfile.write(file, speech.samples, speech.rate, format=container, subtype=coding)
    except soundfile.SoundFileError:
        rate = speech.rate
        raise invalid(f"response_format {form} does not take {rate} samples a second") from None
    return file.getvalue()
