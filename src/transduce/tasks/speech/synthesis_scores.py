"""Scores of synthesis: failures, agreement with recordings, and errors of a recogniser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transduce.audio.read import read_audio
from transduce.metrics.cepstra import mel_cepstral_distortion
from transduce.metrics.measure import measure
from transduce.tasks.recipe_settings import auxiliary_run
from transduce.tasks.speech.recipe import SpeechRecognitionRecipe
from transduce.tasks.speech.recogniser import Recogniser
from transduce.tasks.speech.spoken import Speech
from transduce.tasks.speech.task import load_speech

ERROR_RATES = ("word-error-rate", "character-error-rate")


def free_scores(spoken: Sequence[Speech]) -> dict[str, float]:
    """Means over texts synthesised without teacher forcing, in percent.

    Higher is better, except for failures: texts that do not stop, or stop before the last token is
    attended to.
    """
    return {
        "coverage": float(np.mean([speech.coverage for speech in spoken])),
        "monotony": float(np.mean([speech.monotony for speech in spoken])),
        "stopped": float(np.mean([100 * speech.stopped for speech in spoken])),
        "failures": float(
            np.mean([100 * (not (speech.stopped and speech.reached)) for speech in spoken])
        ),
    }


def recorded_scores(spoken: Sequence[Speech], recorded: Sequence[Speech]) -> dict[str, float]:
    """Length of all speech in percent of the recordings', and the distortion in dB."""
    pairs = list(zip(spoken, recorded, strict=True))
    distortions = [
        mel_cepstral_distortion(a.frames.numpy(), b.frames.numpy())
        for a, b in pairs
        if len(a.frames) and len(b.frames)
    ]
    length = 100 * sum(a.seconds for a, _ in pairs) / max(1e-9, sum(b.seconds for _, b in pairs))
    return {
        "length-ratio": length,
        "mel-cepstral-distortion": float(np.mean(distortions)) if distortions else float("nan"),
    }


def error_rates(heard: Sequence[str], texts: Sequence[str], prefix: str = "") -> dict[str, float]:
    """Word and character error rate of recognised texts, each under `prefix` and its name."""
    rates = measure(ERROR_RATES, heard, [[text] for text in texts])
    return {f"{prefix}{name}": float(rates[name]) for name in ERROR_RATES}


def load_recogniser(run: str | None, device: str) -> Recogniser | None:
    """The run of `evaluation.recogniser`; None if unset. Raises RunError for a run of another
    task."""
    if run is None:
        return None
    path = Path(run)
    task, use = "speech-recognition", ", not 'speech-recognition'"
    settings = auxiliary_run(path, "evaluation.recogniser", task, use)
    return load_speech(
        SpeechRecognitionRecipe.parse(settings, str(path / "recipe.toml")), path, device
    )


def heard_texts(recogniser: Recogniser, spoken: Sequence[Speech]) -> list[str]:
    """Recognised text of each speech, from its WAV file."""
    rate = recogniser.recipe.audio.rate
    samples = (read_audio(speech.wav(), rate, "speech") for speech in spoken)
    frames = (recogniser.extractor(speech) for speech in samples)
    return [speech.text for speech in recogniser.recognise(frames, recogniser.options)]
