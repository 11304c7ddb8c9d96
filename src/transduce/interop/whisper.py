"""Whisper, for speech recognition."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from transduce.errors import DataError
from transduce.interop.layers import Copier, MarianDefaults, StackLayout
from transduce.interop.read import (
    Config,
    ImportedModel,
    open_checkpoint,
    read_generation,
)
from transduce.interop.tokenizers import Names, read_tokenizer
from transduce.nn.stack_configs import TransformerConfig
from transduce.settings.sections import to_dict
from transduce.speech.model_config import SpeechConfig, WhisperFrontEndConfig
from transduce.text import HuggingFaceTokenizer
from transduce.text.languages import spoken_code

START, END, NO_TIMES = "<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>"
WHISPER_TOKENS: Names = {"bos": ("start_token",), "eos": ("eos_token",)}
WHISPER_POSITIONS = 1500
"""Positions of a window."""
WHISPER_USUAL = MarianDefaults("gelu", dropout=0.0)


def import_whisper(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` whisper."""
    config.known_architecture("WhisperForConditionalGeneration")
    config.require("max_source_positions", WHISPER_POSITIONS, WHISPER_POSITIONS)
    checkpoint = open_checkpoint(directory)
    copier = Copier(checkpoint, without_bias=("k_proj",))
    m, bins = config.integer("d_model", 384), config.integer("num_mel_bins", 80)
    size = config.integer("vocab_size", 51865)
    tokenizer = read_whisper_tokenizer(directory, size)
    for name, theirs, n_in in (("first", "conv1", bins), ("second", "conv2", m)):
        kernel = checkpoint.take(f"model.encoder.{theirs}.weight", m, n_in, 3)
        copier.weights[f"front_end.{name}.weight"] = kernel
        copier.weights[f"front_end.{name}.bias"] = checkpoint.take(
            f"model.encoder.{theirs}.bias", m
        )
    stacks: dict[str, TransformerConfig] = {}
    for stack, n in (
        ("encoder", WHISPER_POSITIONS),
        ("decoder", config.integer("max_target_positions", 448)),
    ):
        table = checkpoint.take(f"model.{stack}.embed_positions.weight", n, m)
        stacks[stack] = copier.marian_stack(
            config, stack, m, WHISPER_USUAL, StackLayout("pre", positions=table)
        )
    copier.tied_words("proj_out", tokenizer.numbering.rows, size, m)
    left_out = checkpoint.finish()
    generation = read_generation(directory, config)
    made = make_whisper(directory, copier.weights, stacks, tokenizer, generation)
    return replace(made, left_out=left_out)


def read_whisper_tokenizer(directory: Path, size: int) -> HuggingFaceTokenizer:
    """The tokenizer of a directory, for an embedding of `size` rows.  Raises DataError."""
    special = {"start_token": START, "eos_token": END}
    return read_tokenizer(directory, size, WHISPER_TOKENS, special, usual="WhisperTokenizer")


def make_whisper(
    directory: Path,
    weights: Mapping[str, Tensor],
    stacks: Mapping[str, TransformerConfig],
    tokenizer: HuggingFaceTokenizer,
    generation: Config,
) -> ImportedModel:
    """The run of a Whisper whose weights are copied.  generation: `generation_config.json`.

    directory: of the files.  stacks: settings of encoder and decoder.  tokenizer: of the texts.
    """
    kernel = weights["front_end.first.weight"]  # (m, bins, 3)
    model = SpeechConfig(
        d_model=len(kernel),
        front_end=WhisperFrontEndConfig(kind="whisper"),
        **stacks,
        ctc=False,
        scale_embeddings=False,  # transformers reads scale_embedding, and does not use it
        output_bias=True,
    )
    recipe = {
        "task": "speech-recognition",
        "data": {},
        "audio": {"features": "whisper", "bins": kernel.shape[1], "normalise": "none"},
        "text": {"tokenizer": {"kind": tokenizer.kind}},
        "model": to_dict(model),
        "prompt": _prompt(tokenizer, generation, directory),
        "decoding": {"beam_size": 5, "stop": "first", "length_penalty": "mean"},
    }
    return ImportedModel(recipe, dict(weights), {"tokenizer": tokenizer})


def _prompt(tokenizer: HuggingFaceTokenizer, generation: Config, directory: Path) -> dict[str, Any]:
    added = tokenizer.added_tokens
    if NO_TIMES not in added:
        raise DataError(f"{directory}: the tokenizer has no {NO_TIMES}; it is not Whisper's")
    here = {there: i for i, there in enumerate(tokenizer.numbering.rows)}
    prompt: dict[str, Any] = {}
    for ours, name in (
        ("suppressed", "suppress_tokens"),
        ("suppressed_first", "begin_suppress_tokens"),
    ):
        theirs = generation.values.get(name) or []
        if not isinstance(theirs, list) or not all(isinstance(i, int) for i in theirs):
            raise DataError(f"{generation.path}: {name} must be a list of ids")
        prompt[ours] = sorted({here[i] for i in theirs if i in here})
    prompt["alignment_heads"] = generation.values.get("alignment_heads") or []
    # Models of English alone have the marks of other languages, but never learnt them.
    several = generation.values.get("is_multilingual") is not False
    if several and "<|transcribe|>" in added and "<|en|>" in added:
        names = {i: name for name, i in added.items()}
        forced = _forced(generation, {there: names.get(i) for there, i in here.items()})
        codes = {name[2:-2] for name in added}
        declared = generation.values.get("language")
        language = spoken_code(declared, codes) if isinstance(declared, str) else None
        prompt["language"] = language or next((c for c in forced if len(c) <= 3), "auto")
        if "translate" in (generation.values.get("task"), *forced):
            prompt["task"] = "translate"
    return prompt


def _forced(generation: Config, names: Mapping[int, str | None]) -> list[str]:
    """Marks that fine-tuned models begin with, such as "de", from `forced_decoder_ids`: pairs of a
    position and an id, or null to leave it to the model."""
    pairs = generation.values.get("forced_decoder_ids") or []
    if not isinstance(pairs, list) or not all(isinstance(p, list) and len(p) == 2 for p in pairs):
        raise DataError(f"{generation.path}: forced_decoder_ids must be a list of pairs")
    marks = (names.get(token) for _, token in pairs)
    return [mark[2:-2] for mark in marks if mark]
