"""Transcriptions by the `openai` client against `transduce serve`."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.served import Served, library, served
from transduce import load
from transduce.errors import CancelledError, SettingError
from transduce.serve.calls import RequestError
from transduce.serve.service import Service
from transduce.serve.settings import ServeSettings
from transduce.serve.worker import ToTranscribe, Worker
from transduce.text.scripts import joined_lines

openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")
pytest.importorskip("soundfile")

from helpers.audio import encoded, noise  # noqa: E402
from helpers.served_runs import speech_run  # noqa: E402
from helpers.speakers import weights_file  # noqa: E402
from helpers.tunes import RATE, tune  # noqa: E402
from transduce.runs.importing import import_run  # noqa: E402
from transduce.speech.segments import Segment, written  # noqa: E402


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speech_run(tmp_path_factory.mktemp("speech") / "tunes-run")


@pytest.fixture(scope="module")
def recording() -> bytes:
    """Three tunes with pauses, in FLAC."""
    quiet = noise(1, RATE, 3, 0.003)
    parts = [quiet]
    for seed, text in enumerate(("abe", "dc", "eab")):
        parts += [tune(text, seed), quiet]
    return encoded(np.concatenate(parts), RATE, "FLAC")


@pytest.fixture(scope="module")
def segments(run: Path, recording: bytes) -> list[Segment]:
    result = list(library(run).transcribe(recording))
    assert len(result) == 3 and any(one.words for one in result)
    return result


def test_usual_names_and_what_is_not_answered(client: Any, recording: bytes) -> None:
    file = ("a.flac", recording)
    own = client.audio.transcriptions.create(file=file, model="tunes-run")
    usual = client.audio.transcriptions.create(file=file, model="whisper-1")
    assert usual.text == own.text
    with pytest.raises(openai.BadRequestError, match="'logprobs' is not answered"):
        client.audio.transcriptions.create(file=file, model="tunes-run", include=["logprobs"])
    with pytest.raises(openai.NotFoundError, match="no model 'whisper-2'"):
        client.audio.transcriptions.create(file=file, model="whisper-2")


def test_hotwords(client: Any, run: Path, recording: bytes) -> None:
    words = ["ddd", "cc"]
    answer = client.audio.transcriptions.create(
        file=("a.flac", recording), model="tunes-run", extra_body={"hotwords": words}
    )
    options = dataclasses.replace(library(run).predictor.options, hotwords=tuple(words))
    texts = [segment.text for segment in library(run).transcribe(recording, options)]
    assert answer.text == joined_lines(texts)
    with pytest.raises(openai.BadRequestError, match="hotwords has 65 entries; at most 64"):
        client.audio.transcriptions.create(
            file=("a.flac", recording), model="tunes-run", extra_body={"hotwords": ["a"] * 65}
        )


def test_formats(client: Any, recording: bytes, segments: list[Segment]) -> None:
    def ask(form: str, **more: Any) -> Any:
        return client.audio.transcriptions.create(
            file=("a.flac", recording), model="tunes-run", response_format=form, **more
        )

    text = joined_lines([one.text for one in segments])
    result = ask("json", language="en", temperature=0)
    assert result.text == text and result.usage.seconds == 6
    assert ask("text") == f"{text}\n"
    assert ask("srt") == "".join(written(segments, "srt", ""))
    assert ask("vtt") == "".join(written(segments, "vtt", ""))
    verbose = ask("verbose_json")
    assert verbose.text == text and 5 < verbose.duration < 6 and verbose.words is None
    assert [one.id for one in verbose.segments] == [0, 1, 2]
    for one, segment in zip(verbose.segments, segments, strict=True):
        assert (one.text, one.start, one.end) == (
            segment.text,
            pytest.approx(segment.start),
            pytest.approx(segment.end),
        )
        assert one.avg_logprob <= 0 and one.compression_ratio > 0
    both = ask("verbose_json", timestamp_granularities=["word", "segment"])
    assert [word.word for word in both.words] == [w.text for one in segments for w in one.words]
    assert len(both.segments) == 3
    assert ask("verbose_json", timestamp_granularities=["word"]).segments is None


def test_a_stream(client: Any, recording: bytes, segments: list[Segment]) -> None:
    *deltas, last = client.audio.transcriptions.create(
        file=recording, model="tunes-run", response_format="json", stream=True
    )
    assert last.type == "transcript.text.done"
    assert last.text == joined_lines([segment.text for segment in segments])
    assert {one.type for one in deltas} == {"transcript.text.delta"} and len(deltas) == 3
    assert "".join(one.delta for one in deltas) == last.text


def test_mistakes(client: Any, recording: bytes) -> None:
    def ask(**fields: Any) -> Any:
        good = {"file": ("a.flac", recording), "model": "tunes-run"}
        return client.audio.transcriptions.create(**{**good, **fields})

    for fields, message in [
        ({"file": ("a.wav", b"RIFF")}, "the file"),
        ({"file": ("a.wav", b"")}, "the file"),
        ({"response_format": "xml"}, "is none of json"),
        ({"timestamp_granularities": ["letter"]}, "neither segment nor word"),
        ({"extra_body": {"stream": "perhaps"}}, "stream is not true or false"),
    ]:
        with pytest.raises(openai.BadRequestError, match=message):
            ask(**fields)
    refused = pytest.raises(openai.BadRequestError, match="this model does not translate")
    with refused, pytest.deprecated_call():
        client.audio.translations.create(file=("a.flac", recording), model="tunes-run")
    with pytest.raises(openai.NotFoundError, match="there is no model 'whisper-3'"):
        ask(model="whisper-3")
    with pytest.raises(openai.APIError, match="the file"):
        list(ask(file=b"RIFF", stream=True))


def test_a_model_of_texts_takes_no_recordings(server: Served, recording: bytes) -> None:
    address = f"{server.url}/v1"
    with (
        openai.OpenAI(api_key="x", base_url=address, max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="takes no recordings"),
    ):
        client.audio.transcriptions.create(file=recording, model="de-en")


def test_recordings_in_memory_are_bounded() -> None:
    service = Service([], load, ServeSettings())

    reserved = [service.reserve("25000000", 26_000_000) for _ in range(7)]
    with pytest.raises(RequestError, match="too many files") as caught:
        service.reserve("", 26_000_000)
    assert caught.value.status == 429
    reserved.pop()
    service.reserve("\u0663x", 26_000_000)


def test_a_transcription_ends_with_its_call(run: Path, recording: bytes) -> None:
    worker, given = Worker(library(run)), ToTranscribe(recording, language="en", prompt="abe")
    result: list[object] = []
    for most in (0, 1):
        result.clear()
        with pytest.raises(CancelledError):
            for segment in worker.transcribe(given, lambda most=most: len(result) >= most):  # type: ignore[misc]
                result.append(segment)
        assert len(result) == most
    *result, seconds = worker.transcribe(given, lambda: False)
    assert len(result) == 3 and seconds == pytest.approx(5.2, abs=0.5)


def test_no_client_chooses_a_path(listening: Served, tmp_path: Path, recording: bytes) -> None:
    """A run of recordings reads paths; a request must not name one."""
    path = tmp_path / "a.flac"
    path.write_bytes(recording)
    body = {"model": "tunes-run", "inputs": [str(path)]}
    status, answer = listening.ask("/api/predict", body)
    assert status == 200 and "/v1/audio/transcriptions" in answer["predictions"][0]["error"]
    chat = {"model": "tunes-run", "messages": [{"role": "user", "content": str(path)}]}
    for stream in (False, True):
        status, answer = listening.ask("/v1/chat/completions", {**chat, "stream": stream})
        assert status == 400 or "/v1/audio/transcriptions" in answer
        assert "/v1/audio/transcriptions" in str(answer)


def test_speech_that_goes_on(listening: Served, recording: bytes) -> None:
    """Final lines at once for a whole recording, and certain words of an open one."""

    def ask(**fields: str) -> tuple[int, Any]:
        response = httpx.post(
            f"{listening.url}/page/speech",
            data={"model": "tunes-run", **fields},
            files={"file": ("a.flac", recording)},
            timeout=60,
        )
        return response.status_code, response.json()

    status, whole = ask(last="true")
    assert status == 200 and whole["final"] and not whole["certain"] and not whole["draft"]
    status, begun = ask()
    assert status == 200 and begun["state"]["done"] > 4
    for fields, message in (
        ({"state": "[" * 9999}, "state is not one of an answer; leave it out at first"),
        ({"state": '{"done": -1}'}, "state is not one of an answer"),
        ({"last": "perhaps"}, "is none of false, true"),
        ({"model": "x"}, "no model 'x'"),
    ):
        status, answer = ask(**fields)
        assert 400 <= status < 500 and message in answer["error"]["message"], answer


@pytest.mark.system
def test_who_spoke(run: Path, recording: bytes, tmp_path: Path) -> None:
    encoder = import_run(weights_file(tmp_path / "pretrained.pt"), tmp_path / "voices")
    file = ("a.flac", recording)
    with (
        served(run, "--speakers", encoder) as server,
        openai.OpenAI(api_key="x", base_url=f"{server.url}/v1", max_retries=0) as client,
    ):
        ask = partial(
            client.audio.transcriptions.create,
            file=file,
            model="gpt-4o-transcribe-diarize",
            response_format="diarized_json",
            chunking_strategy="auto",
        )
        answer, events = ask(), [*ask(stream=True)]
        with pytest.raises(openai.BadRequestError, match="known_speaker_names is not"):
            ask(known_speaker_names=["Ann"])
    assert type(answer).__name__ == "TranscriptionDiarized" and len(answer.segments) >= 3
    assert all(segment.speaker in "ABC" for segment in answer.segments)
    assert joined_lines([segment.text for segment in answer.segments]) == answer.text
    *parts, done = events
    assert [part.text for part in parts] == [segment.text for segment in answer.segments]
    assert [part.speaker for part in parts] == [segment.speaker for segment in answer.segments]
    assert done.type == "transcript.text.done" and done.text == answer.text


def test_an_encoder_is_needed(client: Any, recording: bytes) -> None:
    with pytest.raises(openai.BadRequestError, match="needs a server with --speakers ENCODER"):
        client.audio.transcriptions.create(
            file=("a.flac", recording), model="tunes-run", response_format="diarized_json"
        )


def test_a_recording_beyond_the_limit_names_the_remedies(run: Path) -> None:
    with served(run, "--max-recording", 1) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0)
        file = ("a.wav", bytes(2_100_000))
        with pytest.raises(openai.APIStatusError, match=r"as MP3.*--max-rec") as error:
            client.audio.transcriptions.create(file=file, model="whisper-1")
    assert error.value.status_code == 413 and "may have 1 MB" in str(error.value)
    for megabytes in (0, 191):
        with pytest.raises(SettingError, match="give 1 to 190 megabytes"):
            ServeSettings(max_recording=megabytes)
