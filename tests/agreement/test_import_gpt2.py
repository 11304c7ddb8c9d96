"""Imported GPT-2s say what `transformers` says of the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from helpers.hugging_face import byte_level, largest_difference, loaded, ours, random_batch, save
from helpers.native import EACH_ENGINE, needs_native
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest, search
from transduce.engine.model import NativeModel
from transduce.interop.models import import_directory
from transduce.models.decoder_only import DecoderOnly, DecoderOnlyConfig, build_decoder_only
from transduce.sequence import Padded
from transduce.settings.sections import parse
from transduce.text import BOS, EOS, PAD, UNK, HuggingFaceTokenizer

TOLERANCE = 1e-5
END = "<|endoftext|>"
SIZE = 290
SHAPES = [
    {"n_embd": 24, "n_head": 3, "n_layer": 2},
    {"n_layer": 5, "n_inner": 19, "activation_function": "relu"},
    {"n_layer": 2, "scale_attn_by_inverse_layer_idx": True, "layer_norm_epsilon": 1e-3},
    {"n_layer": 1, "scale_attn_weights": False, "activation_function": "gelu"},
    {"n_layer": 2, "tie_word_embeddings": False},
]


def gpt2(directory: Path, kind: str = "GPT2LMHeadModel", **changes: Any) -> Any:
    shape = {"n_embd": 16, "n_head": 2, "n_layer": 3, "n_positions": 64, **changes}
    end = {"bos_token_id": 0, "eos_token_id": 0}
    model = getattr(transformers, kind)(transformers.GPT2Config(vocab_size=SIZE, **end, **shape))
    save(model, directory)
    byte_level(directory, SIZE - 5, [END])  # some rows of the matrix stay without a token
    return model


def imported(directory: Path) -> tuple[DecoderOnly, HuggingFaceTokenizer]:
    result = import_directory(directory)
    assert result.recipe["task"] == "language-model"
    tokenizer = result.tokenizers["tokenizer"]
    assert isinstance(tokenizer, HuggingFaceTokenizer)
    model = build_decoder_only(parse(DecoderOnlyConfig, result.recipe["model"]), tokenizer.size)
    loaded(model, dict(result.weights))
    return model, tokenizer


def native(directory: Path, model: DecoderOnly) -> NativeModel:
    """The imported model in the native engine."""
    recipe = import_directory(directory).recipe
    return NativeModel(model, parse(DecoderOnlyConfig, recipe["model"]))


@needs_native
@pytest.mark.parametrize("shape", SHAPES)
@torch.inference_mode()
def test_native_logits(shape: dict[str, Any], tmp_path: Path) -> None:
    gpt2(tmp_path, **shape)
    model, tokenizer = imported(tmp_path)
    ids, _ = random_batch(tokenizer.numbering, (64, 64), padding=-1)
    target = Padded.unpadded(ours(ids, tokenizer.numbering))
    engine = native(tmp_path, model)
    result, own = engine.step(target, engine.start()), model(target)
    theirs = list(range(EOS, tokenizer.size))
    assert largest_difference(result[..., theirs], own[..., theirs]) < TOLERANCE
    assert result.softmax(-1)[..., [PAD, UNK, BOS]].max() == 0.0


@pytest.mark.parametrize("shape", SHAPES)
def test_logits(shape: dict[str, Any], tmp_path: Path) -> None:
    reference = gpt2(tmp_path, **shape)
    model, tokenizer = imported(tmp_path)
    numbering = tokenizer.numbering
    assert tokenizer.size == SIZE + 3
    ids, _ = random_batch(numbering, (64, 64), padding=-1)
    with torch.no_grad():
        expected = reference(ids).logits
        result = model(Padded.unpadded(ours(ids, numbering)))
    in_our_order = expected[..., list(numbering.rows)]
    theirs = list(range(EOS, tokenizer.size))
    assert largest_difference(result[..., theirs], in_our_order[..., theirs]) < TOLERANCE
    probabilities = result.softmax(-1)
    assert probabilities[..., [PAD, UNK, BOS]].max() == 0.0
    assert largest_difference(probabilities[..., EOS], expected.softmax(-1)[..., 0]) < TOLERANCE


def test_without_a_head_and_with_the_old_buffers(tmp_path: Path) -> None:
    """The files of the first GPT-2: no prefix, and the causal mask among the weights."""
    import safetensors.torch

    reference = gpt2(tmp_path, "GPT2Model")
    file = tmp_path / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    mask = torch.ones(1, 1, 64, 64).tril()
    safetensors.torch.save_file({**tensors, "h.0.attn.bias": mask}, file, {"format": "pt"})
    model, tokenizer = imported(tmp_path)
    ids, _ = random_batch(tokenizer.numbering, (20, 20), padding=-1)
    with torch.no_grad():
        expected = reference(ids).last_hidden_state
        target = Padded.unpadded(ours(ids, tokenizer.numbering))
        result = model.advance(target, model.start()).values
    assert largest_difference(result, expected) < TOLERANCE


@pytest.mark.parametrize("engine", EACH_ENGINE)
def test_both_go_on_alike(engine: Any, tmp_path: Path) -> None:
    reference = gpt2(tmp_path)
    model, tokenizer = imported(tmp_path)
    ids, _ = random_batch(tokenizer.numbering, (7,) * 20, padding=-1)
    with torch.no_grad():
        expected = reference.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_length=47, pad_token_id=0
        )
    prefix = ours(ids, tokenizer.numbering)
    steps: Any = native(tmp_path, model) if engine == "native" else model
    result = search(
        SearchRequest(
            steps.step,
            steps.start(),
            Padded.unpadded(prefix),
            torch.full((len(ids),), 40),
            EOS,
            (BOS, PAD),
            DecodingOptions(beam_size=1, length_penalty="none"),
        )
    )
    for row, best in zip(expected[:, 7:].tolist(), result, strict=True):
        until_end = row[: row.index(0)] if 0 in row else row
        there = [tokenizer.numbering.rows[token] for token in best[0].tokens]
        assert there == until_end
