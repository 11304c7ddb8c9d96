"""The deadline of a recording, in a whole answer and in events."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("starlette")

from starlette.requests import Request

from transduce.serve.calls import Call, RequestError
from transduce.serve.dialects import openai_audio
from transduce.serve.dialects.openai_audio import Transcriptions
from transduce.serve.requests import Fields, Upload
from transduce.serve.worker import AUDIO

MESSAGE = "the answer takes too long; send a shorter recording"


class Endless:
    """A service that never writes a segment."""

    settings = SimpleNamespace(timeout=0.01, speakers=None)

    def models(self) -> list[Any]:
        return []

    async def transcribe(self, name: str, recording: Any, call: Call) -> Any:
        yield await call.outcome(asyncio.get_running_loop().create_future())


async def _connected() -> dict[str, Any]:
    return await asyncio.get_running_loop().create_future()  # never gone


@pytest.mark.parametrize("stream", ["false", "true"])
def test_a_recording_beyond_the_deadline(monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    async def chosen(service: Any, name: str) -> Any:
        return SimpleNamespace(run=SimpleNamespace(inputs=AUDIO))

    monkeypatch.setattr(openai_audio, "choose_model", chosen)
    endpoint: Any = Transcriptions(Endless())  # type: ignore[arg-type]
    fields = Fields({"model": "a", "file": Upload("a.wav", b"RIFF"), "stream": stream})
    scope = {"type": "http", "path": "/v1/audio/transcriptions", "headers": []}

    async def answer() -> str:
        response = await endpoint.transcribe(Request(scope, _connected), fields)
        return "".join([part async for part in response.body_iterator])

    if stream == "true":
        assert MESSAGE in asyncio.run(answer())
    else:
        with pytest.raises(RequestError, match=MESSAGE) as error:
            asyncio.run(answer())
        assert error.value.status == 503
