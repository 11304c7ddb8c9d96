"""Features of recordings: in blocks as at once, and their shapes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.audio import noise, tone
from transduce.errors import SettingError
from transduce.settings.sections import parse
from transduce.speech.features import AudioConfig, Fbank, Features, FrameStream, Mel, WhisperMel

KINDS: list[Features] = [Fbank(), Fbank(8000, 40), WhisperMel(), Mel(), Mel(22_050)]


@given(st.sampled_from(KINDS), st.lists(st.integers(0, 4000), max_size=9))
@settings(max_examples=80, deadline=None)
def test_blocks_equal_the_whole_to_the_last_bit(kind: Features, sizes: list[int]) -> None:
    samples = noise(sum(sizes) / 16_000, level=0.1)
    stream = FrameStream(kind)
    frames = [stream.add(block) for block in np.split(samples, np.cumsum(sizes[:-1]))]
    streamed = kind.finish(np.concatenate([*frames, stream.end()]))
    assert np.array_equal(streamed, kind(samples))


@pytest.mark.parametrize("kind", KINDS)
def test_the_frames_of_a_second(kind: Features) -> None:
    frames = kind(np.zeros(kind.rate * 10, np.float32))
    assert frames.shape[1] == kind.bins
    seconds = kind.window_samples / kind.rate or 10
    assert abs(len(frames) * kind.seconds - seconds) < 0.04
    assert len(np.unique(frames)) == 1  # digital silence is the same everywhere, and finite
    assert frames.dtype == np.float32 and np.isfinite(frames).all()


@pytest.mark.parametrize("kind", [Fbank(), Mel()])
def test_a_tone_is_in_its_bin(kind: Features) -> None:
    bins = []
    for frequency in (200, 1000, 5000):
        frames = kind(tone(1, frequency=frequency))
        frame = frames[len(frames) // 2]
        bins.append(int(frame.argmax()))
        assert frame.max() > np.median(frame) + 5
    assert bins == sorted(bins)
    assert bins[0] < 15 and bins[2] > 55


def test_short_recordings() -> None:
    zeros = np.zeros(400, np.float32)
    assert Fbank()(zeros[1:]).shape == (0, 80)
    assert Fbank()(zeros).shape == (1, 80)
    for kind in (WhisperMel(), Mel()):
        assert kind(zeros[:0]).shape == (0, 80)
        assert len(kind(zeros[:1])) >= 1


def test_settings() -> None:
    assert parse(AudioConfig, {}, "") == AudioConfig()
    for name in ("fbank", "whisper", "mel"):
        made = parse(AudioConfig, {"features": name, "bins": 64}, "").extractor()
        assert (made.bins, made.rate) == (64, 16_000)
    with pytest.raises(SettingError, match=r'"whisper" needs audio\.rate = 16000, not 8000'):
        parse(AudioConfig, {"features": "whisper", "rate": 8000}, "")
