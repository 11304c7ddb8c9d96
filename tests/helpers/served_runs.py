"""Tiny runs of other tasks than translation, to serve."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

import transduce
from helpers.labelled_texts import BERT, sentences, settings
from helpers.tiny_run import stack, write_jsonl, write_tsv
from helpers.tunes import AUDIO, recognition_recipe, write_tunes
from transduce.settings.sections import to_toml
from transduce.tasks.text_encoder.predictor import TextEmbedder
from transduce.tasks.text_encoder.recipes import EmbeddingRecipe
from transduce.text import CharactersConfig, train_tokenizer
from transduce.training.weights import write_tensors

ANSWERS = {"hi": "ho", "one": "two", "你好": "您好", "a b": "c d"}
STEPS = {
    "batch_tokens": 192,
    "label_smoothing": 0.0,
    "schedule": {"kind": "constant", "peak": 2e-2},
    "threads": 1,
    "device": "cpu",
}


def dialogue_run(directory: Path) -> Path:
    """A run that has learnt `ANSWERS`, and forgets nothing of a dialogue of three."""
    chance = random.Random(0)
    rows = []
    for _ in range(300):
        asked = chance.choices(sorted(ANSWERS), k=3)
        rows.append({"turns": [text for one in asked for text in (one, ANSWERS[one])]})
    train = write_jsonl(directory.parent / "talk.jsonl", rows)
    recipe: dict[str, Any] = {
        "task": "dialogue",
        "data": {"train": {"path": str(train)}, "hold_out": 0.1, "loss_on": "answers"},
        "text": {"tokenizer": {"kind": "characters"}, "block": 48},
        "model": {"d_model": 32, "decoder": stack(d_ff=64, positions="rotary")},
        "training": {"steps": 80, "validate_every": 80, **STEPS},
        "decoding": {"method": "sample", "max_tokens": 20},
    }
    return transduce.train(recipe, directory)[0]


def language_model_run(directory: Path) -> Path:
    """A run that continues a rhyme, and samples by its recipe."""
    train = directory.parent / "rhyme.txt"
    train.write_text("Row, row, row your boat,\nGently down the stream.\n\n" * 60)
    recipe: dict[str, Any] = {
        "task": "language-model",
        "data": {"train": {"kind": "text", "path": str(train)}, "hold_out": 0.1},
        "text": {"tokenizer": {"kind": "characters"}, "block": 32},
        "model": {"d_model": 16, "decoder": stack(positions="rotary")},
        "training": {"steps": 40, "validate_every": 40, **STEPS},
        "decoding": {"method": "sample", "max_tokens": 30},
    }
    return transduce.train(recipe, directory)[0]


def embedding_run(directory: Path) -> Path:
    """A run with random weights that embeds texts in 16 dimensions, of length 1."""
    torch.manual_seed(1)
    recipe = EmbeddingRecipe.parse(
        {
            "task": "embedding",
            "model": {"d_model": 16, "encoder": BERT, "pooling": "mean"},
            "text": {"max_length": 64},
        },
        "recipe",
    )
    embedder = TextEmbedder(recipe, train_tokenizer(CharactersConfig(), ["abcdefgh xyz"]))
    directory.mkdir(parents=True)
    embedder.tokenizer.save(directory / "tokenizer.json")
    write_tensors(directory / "weights.safetensors", embedder.model.state_dict())
    (directory / "recipe.toml").write_text(to_toml(embedder.recipe), encoding="utf-8")
    return directory


def label_run(directory: Path) -> Path:
    """A classifier of animals, plants and stones."""
    data = write_tsv(directory.parent / "kinds.tsv", sentences(200))
    return transduce.train(settings(data, "training.steps=40"), directory)[0]


def speech_run(directory: Path) -> Path:
    """A run that writes down tunes, with many faults."""
    recipe = recognition_recipe(write_tunes(directory.parent / "tunes", 120), 150)
    return transduce.train(recipe, directory)[0]


def speaking_run(directory: Path) -> Path:
    """A run of speech synthesis by two speakers, after one step of training."""
    small = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "duration_layers": 1}
    tunes = write_tunes(directory.parent / "tunes", 30, speakers={"ann": 1.0, "bob": 0.5})
    recipe = {
        "task": "speech-synthesis",
        "data": {"train": tunes, "hold_out": 0.2},
        "audio": AUDIO,
        "model": small,
        "training": {
            "steps": 1,
            "batch_tokens": 100,
            "validate_every": 1,
            "threads": 1,
            "device": "cpu",
        },
        "speaking": {"seconds_per_token": 0.05, "rounds": 2},
        "evaluation": {"validation_texts": 0},
    }
    return transduce.train(recipe, directory)[0]
