"""Samples from mel magnitudes, and WAV files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.audio import noise, spoken, tone
from transduce.errors import DataError
from transduce.serve.dialects.openai_audio import FORMS, encoded_audio
from transduce.speech import spoken as inversion
from transduce.speech.audio import read_audio
from transduce.speech.audio_files import wav_bytes, write_wav
from transduce.speech.features import Mel
from transduce.speech.spoken import Speech, invert

FEATURES = Mel()


@pytest.mark.parametrize("samples", [tone(1), spoken(1)], ids=["tone", "speech"])
def test_inverted_features_are_near(samples: np.ndarray) -> None:
    frames = torch.from_numpy(FEATURES(samples))
    made = invert(frames, FEATURES)
    assert len(made) == (len(frames) - 1) * FEATURES.hop
    again = torch.from_numpy(FEATURES(made.numpy()))
    assert again.shape == frames.shape
    loud = frames[4:-4] > frames.max() - 4
    assert (again[4:-4] - frames[4:-4])[loud].abs().mean() < 0.25


def test_more_rounds_are_nearer_and_a_seed_repeats() -> None:
    frames = torch.from_numpy(FEATURES(spoken(1)))

    def error(rounds: int) -> float:
        result = torch.from_numpy(FEATURES(invert(frames, FEATURES, rounds).numpy()))
        return float((result.exp() - frames.exp()).square().mean())

    assert error(60) < 0.7 * error(0)
    first = invert(frames, FEATURES, 5, seed=1)
    assert torch.equal(first, invert(frames, FEATURES, 5, seed=1))
    assert not torch.equal(first, invert(frames, FEATURES, 5, seed=2))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_frames(count: int) -> None:
    made = invert(torch.zeros(count, 80), FEATURES, 3)
    assert len(made) == max(0, count - 1) * FEATURES.hop
    assert made.isfinite().all()


def test_a_file_reads_as_it_was_written(tmp_path: Path) -> None:
    samples = noise(0.5)
    write_wav(tmp_path / "a.wav", samples, 16_000)
    assert np.abs(read_audio(tmp_path / "a.wav", 16_000) - samples).max() <= 0.5 / 32768 + 1e-7
    loud = read_audio(wav_bytes(np.array([2.0, -2.0, 0.0], np.float32), 16_000), 16_000)
    assert loud.tolist() == [32767 / 32768, -1.0, 0.0]
    assert [file.name for file in tmp_path.iterdir()] == ["a.wav"]
    with pytest.raises(DataError, match=r"no/a\.wav cannot be written: No such file"):
        write_wav(tmp_path / "no" / "a.wav", samples, 16_000)


def test_long_speech_is_inverted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts meet at quiet frames, have all samples, and the frames of the whole."""
    frames = torch.from_numpy(FEATURES(spoken(3)))
    whole = invert(frames, FEATURES, 30)
    monkeypatch.setattr(inversion, "MOST_FRAMES", 60)
    parts = invert(frames, FEATURES, 30)
    assert parts.shape == whole.shape

    def error(samples: torch.Tensor) -> float:
        again = torch.from_numpy(FEATURES(samples.numpy()))
        return float((again.exp() - frames.exp()).square().mean())

    assert error(parts) < 1.5 * error(whole)


@pytest.mark.parametrize("form", sorted(FORMS))
@pytest.mark.parametrize("rate", [22_050, 24_000])
def test_an_empty_speech_has_empty_audio(form: str, rate: int) -> None:
    pytest.importorskip("soundfile")
    pytest.importorskip("soxr")
    speech = Speech(torch.zeros(0, 80), Mel(rate), of_vocoder=np.zeros(0, np.float32))
    assert len(encoded_audio(speech, form)) < 1000  # a head at most
