"""Speech by the `openai` client against `transduce serve`."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.served import library

openai = pytest.importorskip("openai")
pytest.importorskip("soundfile")

from helpers.served_runs import speaking_run  # noqa: E402
from transduce.speech.audio import read_audio  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speaking_run(tmp_path_factory.mktemp("speech") / "voice")


def ask(client: Any, **fields: Any) -> Any:
    good = {"model": "voice", "voice": "ann", "input": "cab"}
    return client.audio.speech.create(**{**good, **fields})


def test_all_formats_hold_the_same_speech(client: Any, run: Path) -> None:
    speech = library(run).speak("cab")
    wav = ask(client, response_format="wav")
    assert wav.response.headers["content-type"] == "audio/wav"
    assert wav.content == speech.wav()
    with wave.open(io.BytesIO(wav.content)) as opened:
        assert opened.readframes(10**7) == ask(client, response_format="pcm").content
    for form in ("flac", "mp3", "opus"):
        samples = read_audio(ask(client, response_format=form).content, speech.rate, form)
        assert len(samples) == pytest.approx(len(speech.samples), abs=speech.rate // 5), form
        assert np.abs(samples).max() > 0
    assert ask(client).response.headers["content-type"] == "audio/mpeg", "as OpenAI's default"


def test_speed_divides_the_durations(client: Any, run: Path) -> None:
    text = "cabbed " * 9
    slow = ask(client, input=text, speed=0.5, response_format="wav").content
    assert slow == library(run).speak(text, speed=0.5).wav()
    assert len(slow) > len(ask(client, input=text, response_format="wav").content)


def test_a_voice_is_a_speaker(client: Any, run: Path) -> None:
    for voice in ("ann", "bob"):
        content = ask(client, voice=voice, response_format="wav").content
        assert content == library(run).speak("cab", speaker=voice).wav()


def test_a_long_text_is_spoken_whole(client: Any, run: Path) -> None:
    text = "abc de, ba. " * 300
    content = ask(client, input=text, response_format="wav").content
    assert content == library(run).speak(text).wav()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"response_format": "aac"}, "response_format 'aac' is none of mp3, opus"),
        ({"speed": 5.0}, "speed is not a number from 0.25 to 4"),
        ({"input": "  "}, "input is blank"),
        ({"voice": "alloy"}, "speaker 'alloy' is unknown; the run has 'ann', 'bob'"),
        ({"stream_format": "sse"}, "stream_format 'sse' is none of audio"),
    ],
)
def test_mistakes(client: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        ask(client, **fields)


def test_unknown_models(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="there is no model 'other'"):
        ask(client, model="other")
    assert [one.id for one in client.models.list().data] == ["voice"]
    chat = [{"role": "user", "content": "cab"}]
    with pytest.raises(openai.BadRequestError, match="writes no text"):
        client.chat.completions.create(model="voice", messages=chat)
