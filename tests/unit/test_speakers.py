"""Speakers of synthesis: each keeps its pitch; choice by name; fine-tuning with others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from helpers.tunes import RATE, TONES, durations_recipe, write_tunes
from transduce import DataError, SettingError
from transduce.errors import InputError
from transduce.loading import Run
from transduce.settings.sections import apply_overrides
from transduce.speech.spoken import Speech
from transduce.training.weights import read_tensors

SPEAKERS = {"high": 1.0, "low": 0.5}
VECTORS = "front_end.segments.weight"


def settings(train: dict[str, Any], *overrides: str) -> dict[str, Any]:
    return apply_overrides(durations_recipe(train, 200, 10), overrides)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("speakers")
    tunes = write_tunes(directory / "tunes", 160, speakers=SPEAKERS)
    return transduce.load(transduce.train(settings(tunes), directory / "run")[0], "cpu")


def pitch(speech: Speech) -> float:
    """Frequency of the strongest component, in Hz."""
    spectrum = np.abs(np.fft.rfft(speech.samples))
    return float(spectrum.argmax() * RATE / len(speech.samples))


def test_each_speaker_keeps_the_pitch(run: Run) -> None:
    assert run.predictor.facts()["speakers"] == ["high", "low"]
    for letter in "bcd":
        text = letter * 4
        spoken = {name: run.speak(text, speaker=name) for name in SPEAKERS}
        for name, factor in SPEAKERS.items():
            assert pitch(spoken[name]) == pytest.approx(factor * TONES[letter], rel=0.2), name
        assert spoken["low"].fields()["speaker"] == "low"
        torch.testing.assert_close(run.speak(text).frames, spoken["high"].frames)
        by_input = list(run.predict([(text, "low"), (text, ""), (text, "high")]))
        for speech, name in zip(by_input, ("low", "high", "high"), strict=True):
            torch.testing.assert_close(speech.frames, spoken[name].frames, atol=1e-4, rtol=1e-4)  # type: ignore[attr-defined]
    scores = run.evaluate("valid").other_scores
    assert scores["mel-cepstral-distortion"] < 12 and 80 < scores["length-ratio"] < 120
    assert run.explain(("cab", "low")).inputs["speaker"] == "low"


def test_unknown_speakers(run: Run) -> None:
    with pytest.raises(SettingError, match=r"'x' is unknown; the run has 'high', 'low'$"):
        run.speak("ab", speaker="x")
    right, wrong = run.attempt([("ab", "low"), ("ab", "x")])
    assert isinstance(right, Speech)
    assert isinstance(wrong, InputError) and wrong.reason.startswith("speaker 'x' is unknown")


def test_other_speakers_in_fine_tuning(run: Run, tmp_path: Path) -> None:
    """A new voice begins between the others, which keep their vectors."""
    tunes = write_tunes(tmp_path / "tunes", 60, speakers={"new": 0.7})
    recipe = settings(tunes, "training.steps=1", "training.schedule.peak=1e-9")
    recipe |= {"fine_tune": {"run": str(run.path)}}
    del recipe["audio"], recipe["model"]
    tuned = transduce.load(transduce.train(recipe, tmp_path / "run")[0], "cpu")
    assert tuned.predictor.facts()["speakers"] == ["new", "high", "low"]
    base = read_tensors(run.path / "weights.safetensors")[VECTORS]
    vectors = read_tensors(tuned.path / "weights.safetensors")[VECTORS]
    torch.testing.assert_close(vectors, torch.stack([base.mean(0), *base]), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        tuned.speak("abc", speaker="low").frames, run.speak("abc", speaker="low").frames,
        atol=1e-4, rtol=1e-4,
    )  # fmt: skip
    unnamed = write_tunes(tmp_path / "unnamed", 60)
    with pytest.raises(DataError, match=r"0000\.wav has no speaker, and others have"):
        transduce.train(recipe | {"data": {"train": unnamed}}, tmp_path / "other")


def test_a_single_speaker_is_no_choice(tmp_path: Path) -> None:
    tunes = write_tunes(tmp_path / "tunes", 60, speakers={"one": 1.0})
    recipe = settings(tunes, "training.steps=1", "training.schedule.warmup_steps=1")
    single = transduce.load(transduce.train(recipe, tmp_path / "run")[0], "cpu")
    assert single.predictor.inputs == ("text",) and not (single.path / "speakers.json").exists()
    with pytest.raises(SettingError, match="a single voice"):
        single.speak("ab", speaker="one")


def test_attention_takes_speakers_too(tmp_path: Path) -> None:
    tunes = write_tunes(tmp_path / "tunes", 60, speakers=SPEAKERS)
    small = {"n_layers": 1, "n_heads": 2, "d_ff": 32}
    recipe = settings(tunes, "training.steps=3", "training.schedule.warmup_steps=1")
    recipe["model"] = {"kind": "attention", "d_model": 16, "encoder": small, "decoder": small}
    run = transduce.load(transduce.train(recipe, tmp_path / "run")[0], "cpu")
    assert json.loads((run.path / "speakers.json").read_text()) == ["high", "low"]
    assert not run.speak("ab", speaker="low").frames.equal(run.speak("ab").frames)
    assert run.explain(("ab", "low")).answer == run.speak("ab", speaker="low").text
