"""Features against those of kaldi-native-fbank and transformers."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.audio import noise, tone
from transduce.speech.features import Fbank, WhisperMel


@pytest.mark.parametrize(("rate", "bins"), [(16_000, 80), (8000, 40), (22_050, 23)])
def test_fbank_is_kaldis(rate: int, bins: int) -> None:
    kaldi = pytest.importorskip("kaldi_native_fbank")
    samples = tone(3.21, rate) + noise(3.21, rate)
    samples[rate : rate + 4000] = 0
    options = kaldi.FbankOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = bins
    theirs = kaldi.OnlineFbank(options)
    theirs.accept_waveform(rate, (samples * 32768).tolist())
    theirs.input_finished()
    expected = np.stack([theirs.get_frame(i) for i in range(theirs.num_frames_ready)])
    ours = Fbank(rate, bins)(samples)
    assert ours.shape == expected.shape
    assert np.abs(ours - expected).max() < 0.002


@pytest.mark.parametrize("bins", [80, 128])
def test_whisper_mel_is_that_of_transformers(bins: int) -> None:
    transformers = pytest.importorskip("transformers")
    samples = tone(3.21) + noise(3.21)
    extractor = transformers.WhisperFeatureExtractor(feature_size=bins)
    theirs = extractor(samples, sampling_rate=16_000, return_tensors="np")["input_features"][0]
    padded = np.zeros(30 * 16_000, np.float32)
    padded[: len(samples)] = samples
    ours = WhisperMel(bins)(padded)
    assert ours.shape == (3000, bins)
    assert np.abs(ours - theirs.T).max() < 0.002
