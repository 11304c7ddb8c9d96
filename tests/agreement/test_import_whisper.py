"""Imported Whispers write what `transformers` writes with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import transduce
from helpers.audio import encoded, noise, saved, tone
from helpers.hugging_face import byte_level, change_json, largest_difference, ours, save
from transduce import DataError, SettingError
from transduce.decoding.options import DecodingOptions
from transduce.import_run import import_run
from transduce.sequence import Padded
from transduce.tasks.speech.recogniser import Recogniser
from transduce.text import BOS, EOS, PAD, UNK, HuggingFaceTokenizer

TOLERANCE = 1e-5
MARKS = ("<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|notimestamps|>")
SPECIAL = ("<|endoftext|>", "<|startoftranscript|>", *MARKS)
SIZE = 300
SHAPES = [
    {"d_model": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 4},
    {"d_model": 24, "encoder_layers": 3, "decoder_layers": 2, "num_mel_bins": 128},
    {"d_model": 12, "encoder_ffn_dim": 7, "decoder_ffn_dim": 30, "activation_function": "relu"},
    {"d_model": 16, "scale_embedding": True, "max_target_positions": 40},
]


def whisper(directory: Path, **changes: Any) -> Any:
    shape = {
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 20,
        "decoder_ffn_dim": 20,
        "num_mel_bins": 80,
        "max_target_positions": 64,
        **changes,
    }
    ids = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 1}
    none = {"suppress_tokens": None, "begin_suppress_tokens": None}
    config = transformers.WhisperConfig(vocab_size=SIZE, **shape, **ids, **none)
    model = transformers.WhisperForConditionalGeneration(config)
    save(model, directory)
    byte_level(directory, SIZE - 4, SPECIAL)  # some rows of the matrix stay without a token
    return model


def imported(directory: Path, *overrides: str) -> Recogniser:
    run = import_run(directory, directory / "run", overrides=overrides)
    found: Recogniser = transduce.load(run, "cpu").predictor  # type: ignore[assignment]
    return found


def recording(directory: Path, seconds: float = 1.3, seed: int = 0) -> Path:
    samples = tone(seconds, frequency=300.0 + 100 * seed) + noise(seconds, seed=seed)
    return saved(directory / f"{seed}.wav", encoded(samples, subtype="FLOAT"))


@pytest.mark.parametrize("shape", SHAPES)
def test_features_and_logits(shape: dict[str, Any], tmp_path: Path) -> None:
    reference = whisper(tmp_path, **shape)
    recogniser = imported(tmp_path)
    bins = shape.get("num_mel_bins", 80)
    features = transformers.WhisperFeatureExtractor(feature_size=bins)
    samples = [tone(1.0) + noise(1.0), noise(3.2, seed=4)]
    expected = features(samples, sampling_rate=16_000, return_tensors="pt").input_features
    found = torch.stack([recogniser.extractor(one) for one in samples])
    assert largest_difference(found.transpose(1, 2), expected) < 1e-4
    tokenizer = recogniser.tokenizer
    assert isinstance(tokenizer, HuggingFaceTokenizer)
    numbering = tokenizer.numbering
    ids = torch.randint(len(SPECIAL), SIZE, (2, 20), generator=torch.Generator().manual_seed(1))
    ids[:, 0] = 1
    with torch.no_grad():
        wanted = reference(input_features=expected, decoder_input_ids=ids).logits
        target = Padded.unpadded(ours(ids, numbering))
        logits = recogniser.model(Padded.unpadded(expected.transpose(1, 2)), target)
    in_our_order = wanted[..., list(numbering.rows)]
    theirs = [BOS, *range(EOS, tokenizer.size)]
    assert largest_difference(logits[..., theirs], in_our_order[..., theirs]) < TOLERANCE
    assert logits.softmax(-1)[..., [PAD, UNK]].max() == 0.0


@pytest.mark.parametrize("asked", [("de", "transcribe"), ("en", "translate")])
def test_both_write_alike(asked: tuple[str, str], tmp_path: Path) -> None:
    """Greedily, from the prompt of a language and a task on; marks are never written."""
    language, task = asked
    reference = whisper(tmp_path)
    change_json(tmp_path / "generation_config.json", suppress_tokens=[20, 31, 45])
    overrides = (f"prompt.language={language}", f"prompt.task={task}")
    recogniser = imported(tmp_path, *overrides)
    files = [recording(tmp_path, seed=seed) for seed in range(3)]
    options = DecodingOptions(beam_size=1, length_penalty="none")
    frames = torch.stack([recogniser.read(str(file), 0) for file in files])
    found = recogniser.decode(Padded.unpadded(frames), options, range(3))
    banned = [*range(1, len(SPECIAL)), 20, 31, 45]
    start = [1, SPECIAL.index(f"<|{language}|>"), SPECIAL.index(f"<|{task}|>"), len(SPECIAL) - 1]
    rows = recogniser.tokenizer.numbering.rows  # type: ignore[attr-defined]
    for i, decoded in enumerate(found):
        ids = list(start)
        with torch.no_grad():
            while len(ids) < 64:
                mel = frames[i : i + 1].transpose(1, 2)
                given = torch.tensor([ids])
                logits = reference(input_features=mel, decoder_input_ids=given).logits[0, -1]
                logits[banned] = -np.inf
                ids.append(int(logits.argmax()))
                if ids[-1] == 0:
                    break
        written = [there for there in ids[len(start) :] if there]
        assert [rows[token] for token in decoded.hypotheses[0].tokens] == written


def test_a_run_answers_a_line_for_each_path(tmp_path: Path) -> None:
    whisper(tmp_path)
    recogniser = imported(tmp_path)
    file = str(recording(tmp_path))
    answers = recogniser.predict([(file,), ("",), (file,)], DecodingOptions(beam_size=2))
    assert answers[0] == answers[2] and answers[1].text == ""
    long = saved(tmp_path / "long.wav", encoded(noise(31.0, 8000), 8000))
    with pytest.raises(DataError, match=r"lasts 31\.0 s, but the model reads 30 s at a time"):
        recogniser.predict([(str(long),)])
    explained = transduce.load(tmp_path / "run", "cpu").explain(file)
    assert explained.attention and not explained.ctc


def test_a_long_recording_is_read_in_windows(tmp_path: Path) -> None:
    whisper(tmp_path)
    imported(tmp_path)
    syllable = np.concatenate([tone(0.3) + noise(0.3), np.zeros(3200, np.float32)])
    samples = np.concatenate([np.zeros(16_000, np.float32), np.tile(syllable, 72)])
    file = saved(tmp_path / "long.wav", encoded(samples))
    run = transduce.load(tmp_path / "run", "cpu")
    found = list(run.transcribe(file, DecodingOptions(beam_size=1)))
    assert found and all(0 <= one.start < one.end <= 37.1 and not one.words for one in found)


def test_a_language_that_the_model_lacks(tmp_path: Path) -> None:
    whisper(tmp_path)
    with pytest.raises(SettingError, match=r"'xx' is not a language of this model.*en, de"):
        imported(tmp_path, "prompt.language=xx")


def test_another_window_is_refused(tmp_path: Path) -> None:
    whisper(tmp_path, max_source_positions=100)
    with pytest.raises(DataError, match="max_source_positions = 100 is not supported"):
        imported(tmp_path)


def test_it_is_not_trained_on(tmp_path: Path) -> None:
    settings = {
        "task": "speech-recognition",
        "data": {"train": {"kind": "manifest", "path": "a.jsonl"}},
        "audio": {"features": "whisper"},
    }
    with pytest.raises(SettingError, match='recognition learns from "fbank"'):
        transduce.train(settings, tmp_path / "run")
