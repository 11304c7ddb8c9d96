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
from helpers.audio import encoded, noise, saved
from transduce.metrics.symbols import edit_distance
from transduce.runs.importing import import_run

RATE = 8000
PROMPTS = ("agent-alreadyon", "vm-nobox", "vm-opts-full", "vm-record-prepend")


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
    segments = list(run.transcribe(file))
    reference = words(" ".join(texts[f"en/{name}"] for name in PROMPTS))
    output = words(" ".join(segment.text for segment in segments))
    assert edit_distance(output, reference) <= 0.1 * len(reference)
    assert {segment.language for segment in segments} == {"en"}
    assert not any(segment.guard for segment in segments)
    assert all(one.end <= other.start + 0.5 for one, other in pairwise(segments))
