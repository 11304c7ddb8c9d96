"""A real Whisper base, imported with its defaults, writes what was said and nothing else.

Needs its weights, as a directory of Hugging Face, and the prompts of recipes/speech/prompts.toml.
"""

from __future__ import annotations

import io
import json
import os
import re
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

import transduce
from helpers.audio import Samples, encoded, noise, saved
from transduce.metrics.error_rates import edit_distance
from transduce.runs.importing import import_run

RATE = 8000
PROMPTS = ("agent-alreadyon", "vm-nobox", "vm-opts-full", "vm-record-prepend")


def clicks() -> Samples:
    """Bursts of noise of 20 ms, ten percent of the time."""
    random = np.random.default_rng(1)
    return np.repeat(random.random(600) < 0.1, 320) * random.normal(0, 0.2, 192_000)


def swells() -> Samples:
    """Noise that rises and falls as often as syllables."""
    times = np.arange(192_000) / 16_000
    return noise(12.0, 16_000) * (1 + np.sin(8 * times)) / 2


SPEECHLESS = {"clicks": clicks, "swells": swells}


def words(text: str) -> list[str]:
    """In lower case, without punctuation."""
    return re.findall(r"\w+", text.lower())


@pytest.mark.slow
def test_prompts_one_after_the_other(tmp_path: Path) -> None:
    weights = Path(os.environ.get("TRANSDUCE_MODELS", "")) / "whisper-base"
    data = Path(os.environ.get("TRANSDUCE_DATA", "")) / "asterisk-prompts"
    for needed in (weights / "config.json", data / "manifest.jsonl"):
        if not needed.is_file():
            pytest.skip(f"NOT CHECKED with real weights: no {needed}")
    records = map(json.loads, (data / "manifest.jsonl").read_text(encoding="utf-8").splitlines())
    texts = {record["id"]: record["text"] for record in records}
    pause = noise(1, RATE, level=2e-4)
    samples = [pause]
    with zipfile.ZipFile(data / "en.zip") as archive:
        for name in PROMPTS:
            read, _ = soundfile.read(io.BytesIO(archive.read(f"en/{name}.flac")), dtype="float32")
            samples += [read, pause]
    file = saved(tmp_path / "prompts.wav", encoded(np.concatenate(samples), RATE))
    run = transduce.load(import_run(weights, tmp_path / "run"), "cpu")
    segments = list(run.transcribe(file, words=True))
    reference = words(" ".join(texts[f"en/{name}"] for name in PROMPTS))
    output = words(" ".join(segment.text for segment in segments))
    assert edit_distance(output, reference) <= 0.1 * len(reference)
    assert {segment.language for segment in segments} == {"en"}
    assert not any(segment.guard or segment.temperature for segment in segments)
    assert all(segment.no_speech < 0.1 for segment in segments)  # type: ignore[operator]
    assert all(one.end <= other.start + 0.5 for one, other in pairwise(segments))
    spoken = [word for segment in segments for word in segment.words]
    assert words(" ".join(word.text for word in spoken)) == output
    bounds = list(pairwise(np.cumsum([len(part) for part in samples]) / RATE))[::2]
    inside = [any(a <= (w.start + w.end) / 2 <= b for a, b in bounds) for w in spoken]
    assert all(inside)
    for precision, share in (("float32", 0.0), ("int8", 0.05)):
        native = transduce.load(run.path, "cpu", precision, engine="native")
        heard = words(" ".join(segment.text for segment in native.transcribe(file)))
        assert edit_distance(heard, output) <= share * len(output), precision
    for name, samples_of in SPEECHLESS.items():  # nothing is made up, and the record says what was
        segments = list(run.transcribe(encoded(samples_of(), 16_000)))
        assert not any(segment.text for segment in segments), name
        assert all(segment.guard and segment.dropped for segment in segments), name
