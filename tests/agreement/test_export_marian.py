"""Exported Marian directories: transformers, and our own import, compute what the run computes."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import transduce
from helpers.margins import steady
from helpers.tiny_run import stack, taught_run, training, write_tsv
from helpers.toy_translator import toy_pairs
from transduce import DecodingOptions, RunError
from transduce.errors import SettingError
from transduce.interop.marian_export import marian_directory
from transduce.loading import Run
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.nn.stack_configs import TransformerConfig
from transduce.runs.exporting import export_run
from transduce.runs.importing import import_run
from transduce.sequence import Padded
from transduce.text import SubwordConfig, SubwordTokenizer
from transduce.training.weights import write_tensors

TOLERANCE = 1e-5
STACK = TransformerConfig(n_layers=2, n_heads=2, d_ff=24, dropout=0.0)
LINES = [source for source, _ in toy_pairs(12, 7)] + ["Grüße, 犬 ½!"]


def tokenizer(size: int = 330, seed: int = 0) -> SubwordTokenizer:
    lines = [text for pair in toy_pairs(60, seed) for text in pair]
    return SubwordTokenizer.train(SubwordConfig(size=size), lines)


def replaced(config: EncoderDecoderConfig, **changes: Any) -> EncoderDecoderConfig:
    """The same in both stacks."""
    encoder, decoder = (
        dataclasses.replace(one, **changes)  # type: ignore[misc]
        for one in (config.encoder, config.decoder)
    )
    return dataclasses.replace(config, encoder=encoder, decoder=decoder)


BASE = EncoderDecoderConfig(d_model=16, tie="three-way", encoder=STACK, decoder=STACK)
SHAPES = {
    "paper": BASE,
    "halves": replaced(BASE, positions="sinusoidal-halves"),
    "activation": replaced(BASE, activation="gelu-tanh"),
    "unscaled": dataclasses.replace(BASE, scale_embeddings=False, output_bias=True),
    "sizes": dataclasses.replace(
        BASE, d_model=24, decoder=dataclasses.replace(STACK, n_layers=1, n_heads=4, d_ff=40)
    ),
    "two-way": dataclasses.replace(BASE, tie="two-way"),
    "two vocabularies": dataclasses.replace(BASE, tie="two-way"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_logits(shape: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    config, source = SHAPES[shape], tokenizer()
    target = tokenizer(350, 5) if shape == "two vocabularies" else source
    model = build_encoder_decoder(config, source.size, target.size, source is target).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:  # fresh norms and biases would hide a wrong order
                weight.normal_(std=0.5)
    made = marian_directory(model, config, source, target, {}, 64)
    write_tensors(tmp_path / "model.safetensors", made.tensors, {"format": "pt"})
    for name, content in made.files.items():
        (tmp_path / name).write_bytes(content)
    reference, info = transformers.MarianMTModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    ids = torch.randint(4, source.size, (3, 9)), torch.randint(4, target.size, (3, 12))
    mask = torch.ones_like(ids[0])
    mask[1, 5:] = 0
    batch = ids[0].masked_fill(mask == 0, 0)
    with torch.inference_mode():
        ours = model(Padded(batch, mask.bool(), "right"), Padded.unpadded(ids[1]))
        theirs = reference(
            input_ids=batch, attention_mask=mask, decoder_input_ids=ids[1], use_cache=False
        ).logits
    assert (ours - theirs).abs().max() < TOLERANCE


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the paper's architecture, taught until many clear translations differ."""
    directory = tmp_path_factory.mktemp("run")
    data = write_tsv(directory / "toy.tsv", toy_pairs(300))
    layer = stack(n_layers=1, n_heads=4, d_ff=48, norm_order="post")
    settings = {
        "task": "translation",
        "data": {"train": {"kind": "tsv", "path": str(data)}, "hold_out": 0.02},
        "text": {"source": {"kind": "bpe", "size": 390}},
        "model": {"d_model": 32, "tie": "three-way", "encoder": layer, "decoder": layer},
        "training": training(60, 1000, 5e-3, log_every=60),
        "evaluation": {"validation_pairs": 4},
    }
    return taught_run(settings, directory / "run", lambda run: len(set(clear(run).values())) > 8)


OPTIONS = DecodingOptions(
    length_penalty="mean", free_end=True, max_length_ratio=0.0, max_length_extra=200
)


def translations(run: Run, lines: Sequence[str]) -> list[str]:
    return [translation.text for translation in run.translate_batch(lines, OPTIONS)]


def clear(run: Run) -> dict[str, str]:
    """Translations by line, without those that a near tie decides."""
    texts = translations(run, LINES)
    return {LINES[i]: texts[i] for i in steady(run.model, lambda: translations(run, LINES))}


def test_transformers_gives_our_translations(run: Run, tmp_path: Path) -> None:
    directory = export_run(run.path, tmp_path / "marian", form="marian")
    reading = transformers.MarianTokenizer.from_pretrained(directory)
    batch = reading(LINES, return_tensors="pt", padding=True)
    rows = [[i for i in row if i != 0] for row in batch["input_ids"].tolist()]
    assert rows == [[*run.translator.source.encode(line), 3] for line in LINES]
    reference = transformers.MarianMTModel.from_pretrained(directory).eval()
    decoded = reading.batch_decode(reference.generate(**batch), skip_special_tokens=True)
    expected = clear(run)
    outputs = dict(zip(LINES, decoded, strict=True))
    assert {line: outputs[line] for line in expected} == expected


def test_another_length_penalty_is_named(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    export_run(run.path, tmp_path / "marian", form="marian")
    (line,) = [text for text in caplog.messages if "search" in text]
    assert line.startswith("marian does not follow length_penalty = 'gnmt'")
    assert "the same search here: length_penalty = 'mean'" in line


def test_our_import_gives_our_translations_and_scores(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = export_run(run.path, tmp_path / "marian", form="marian")
    with caplog.at_level(logging.WARNING):
        again = transduce.load(import_run(directory, tmp_path / "again"), "cpu")
    assert not [one for one in caplog.records if "ignoring" in one.getMessage()]
    expected = clear(run)
    assert translations(again, list(expected)) == list(expected.values())
    pairs = list(expected.items())
    scores = list(run.score(pairs)), list(again.score(pairs))
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_the_snippet_of_its_page_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = export_run(run.path, tmp_path / "marian", form="marian")
    page = (directory / "README.md").read_text(encoding="utf-8")
    assert "divides scores by the length" in page
    snippet = page.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(directory)
    printed: list[str] = []
    expected = clear(run)
    exec(snippet, {"texts": list(expected), "print": printed.append})
    assert printed == list(expected.values())
    settings = json.loads((directory / "generation_config.json").read_text())
    assert settings["num_beams"] == run.translator.options.beam_size


REFUSED = {
    "positions": (replaced(BASE, positions="rotary"), "model.encoder.positions = 'sinusoidal'"),
    "norm": (replaced(BASE, norm_order="pre"), "model.encoder.norm_order = 'post'"),
    "epsilon": (replaced(BASE, norm_epsilon=1e-6), "model.encoder.norm_epsilon = 1e-05"),
    "tie": (dataclasses.replace(BASE, tie="none"), "model.tie = 'three-way'"),
    "activation": (replaced(BASE, activation="swiglu"), "model.encoder.activation = 'relu'"),
    "embedding norm": (replaced(BASE, embedding_norm=True), "model.encoder.embedding_norm = False"),
    "head": (replaced(BASE, d_head=4), "model.encoder.d_head = None"),
    "mixed": (
        dataclasses.replace(BASE, decoder=dataclasses.replace(STACK, activation="gelu")),
        "model.decoder.activation = 'relu'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_models_are_refused_with_what_to_set(name: str) -> None:
    config, remedy = REFUSED[name]
    source = tokenizer()
    model = build_encoder_decoder(config, source.size, source.size, True)
    with pytest.raises(RunError, match=r"Marian has no .*; train with") as caught:
        marian_directory(model, config, source, source, {}, 64)
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_tokenizers_and_options_are_refused(run: Run, tmp_path: Path) -> None:
    lower = SubwordTokenizer.train(SubwordConfig(size=330, lowercase=True), ["Ich bin", "so"] * 9)
    model = build_encoder_decoder(BASE, lower.size, lower.size, True)
    with pytest.raises(
        RunError,
        match=r"has no text.source.lowercase = True; train with",
    ):
        marian_directory(model, BASE, lower, lower, {}, 64)
    classifier = Path(__file__).parents[1] / "runs" / "0.1.0" / "classification"
    with pytest.raises(RunError, match="does not turn text into text"):
        export_run(classifier, tmp_path / "marian", form="marian")
    with pytest.raises(SettingError, match="--format marian holds float32, not int8; remove"):
        export_run(run.path, tmp_path / "marian", "int8", "marian")
    with pytest.raises(SettingError, match="--languages is for --format argos, not marian"):
        export_run(run.path, tmp_path / "marian", form="marian", languages=("de", "en"))
    assert list(tmp_path.iterdir()) == []
