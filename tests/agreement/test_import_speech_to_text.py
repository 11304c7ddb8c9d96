"""Imported Speech2Text models write what `transformers` writes with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import transduce
from helpers.audio import encoded, noise, saved, spoken
from helpers.hugging_face import (
    largest_difference,
    ours,
    save,
    sentence_pieces,
    sentences,
    write_json,
)
from transduce import DataError
from transduce.decoding.options import DecodingOptions
from transduce.runs.importing import import_run
from transduce.sequence import Padded
from transduce.speech.recipe import padded_frames
from transduce.speech.recogniser import Recogniser
from transduce.text import BOS, EOS, PAD, UNK, MarianTokenizer

TOLERANCE = 1e-5
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
SIZE = 150


def speech_to_text(directory: Path, **changes: Any) -> Any:
    shape = {
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 20,
        "decoder_ffn_dim": 24,
        "conv_channels": 12,
        **changes,
    }
    config = transformers.Speech2TextConfig(vocab_size=SIZE, **shape)
    model = transformers.Speech2TextForConditionalGeneration(config)
    save(model, directory)
    data, result = sentence_pieces(sentences(300), 90)
    (directory / "sentencepiece.bpe.model").write_bytes(data)
    pieces = [*SPECIAL, *(piece for piece in result if piece not in SPECIAL)]
    write_json(directory / "vocab.json", {piece: i for i, piece in enumerate(pieces)})
    return model


def imported(directory: Path) -> Recogniser:
    run = import_run(directory, directory / "run")
    result: Recogniser = transduce.load(run, "cpu").predictor  # type: ignore[assignment]
    return result


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"num_conv_layers": 3, "conv_kernel_sizes": [3, 3, 3], "scale_embedding": False},
        {"input_feat_per_channel": 40, "d_model": 18, "decoder_attention_heads": 2},
    ],
)
def test_logits(shape: dict[str, Any], tmp_path: Path) -> None:
    reference = speech_to_text(tmp_path, **shape)
    recogniser = imported(tmp_path)
    tokenizer = recogniser.tokenizer
    assert isinstance(tokenizer, MarianTokenizer)
    generator = torch.Generator().manual_seed(1)
    frames = torch.randn(2, 61, shape.get("input_feat_per_channel", 80), generator=generator)
    ids = torch.randint(4, len(tokenizer.numbering.rows), (2, 9), generator=generator)
    ids[:, 0] = 2
    with torch.no_grad():
        expected = reference(input_features=frames, decoder_input_ids=ids).logits
        target = ours(ids, tokenizer.numbering)
        target[:, 0] = BOS
        logits = recogniser.model(Padded.unpadded(frames), Padded.unpadded(target))
    rows = list(tokenizer.numbering.rows)
    there = [PAD, UNK, *range(EOS, tokenizer.size)]
    assert largest_difference(logits[..., there], expected[..., rows][..., there]) < TOLERANCE


def test_features_and_outputs(tmp_path: Path) -> None:
    """Kaldi's features, normalised by each recording; greedy outputs token for token."""
    reference = speech_to_text(tmp_path)
    recogniser = imported(tmp_path)
    samples = spoken(1.1) + noise(1.1, level=0.01)
    extractor = transformers.Speech2TextFeatureExtractor()
    expected = extractor(samples, sampling_rate=16_000, return_tensors="pt").input_features
    frames = recogniser.backend.normalisation(padded_frames([recogniser.extractor(samples)]))
    assert largest_difference(frames.values, expected) < 0.02
    options = DecodingOptions(beam_size=1, length_penalty="none")
    recordings = [recogniser.extractor(samples)]
    (result,) = recogniser.each(recordings, options, 0, lambda _, results: results[0])
    with torch.no_grad():
        right = reference.generate(
            frames.values, num_beams=1, max_new_tokens=20, bad_words_ids=[[0], [1], [3]]
        )[0].tolist()
    rows = recogniser.tokenizer.numbering.rows  # type: ignore[attr-defined]
    written = [rows[i] for i in result.hypotheses[0].tokens]
    assert written[: len(right) - 1] == [i for i in right[1:] if i != 2]
    file = saved(tmp_path / "a.wav", encoded(samples))
    (answer,) = recogniser.predict([(str(file),)])
    assert answer.fields().keys() == {"transcript", "score"}


def test_what_is_not_supported(tmp_path: Path) -> None:
    speech_to_text(tmp_path)
    for settings, message in [
        ({"do_upper_case": True}, "do_upper_case is not supported"),
        ({"lang_codes": "mustc"}, "lang_codes, several target languages"),
    ]:
        write_json(tmp_path / "tokenizer_config.json", settings)
        with pytest.raises(DataError, match=message):
            imported(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "vocab.json").unlink()
    with pytest.raises(DataError, match=r"has no vocab.json; copy"):
        imported(tmp_path)
