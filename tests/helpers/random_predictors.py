"""Predictors with random weights for tasks of encoders, and of decoders alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from helpers.tiny_run import stack
from transduce.tasks.language_model.dialogue import DialogueRecipe, TrainedDialogue
from transduce.tasks.language_model.recommendation import RecommendationRecipe, Recommender
from transduce.tasks.language_model.task import LanguageModelRecipe, TrainedLanguageModel
from transduce.tasks.text_encoder.mask_filler import MaskFiller
from transduce.tasks.text_encoder.predictor import Answerer, TextClassifier, TextEmbedder
from transduce.tasks.text_encoder.recipes import (
    ClassificationRecipe,
    EmbeddingRecipe,
    MaskedLanguageModelRecipe,
    QuestionAnsweringRecipe,
)
from transduce.text import CharactersConfig, SymbolsConfig, TokenizerConfig, train_tokenizer

LINES = ["the cat sat on the mat", "a bird sang in the tree", "the dogs ran, and ran", "ten cats"]
STACK = stack(n_layers=2, positions="rotary", activation="gelu")
LEARNED = {**STACK, "positions": "learned"}


def drawn(predictor: Any) -> Any:
    """A predictor with weights so far apart that no two answers tie."""
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in predictor.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    predictor.model.eval()
    return predictor


def random_filler(config: TokenizerConfig, segments: bool = False) -> MaskFiller:
    """A masked language model."""
    settings = {
        "task": "masked-language-model",
        "data": {"train": {"kind": "text", "path": "none.txt"}},
        "text": {"max_length": 24},
        "model": {"d_model": 16, "encoder": LEARNED, "segments": segments},
    }
    recipe = MaskedLanguageModelRecipe.parse(settings, "recipe")
    filler: MaskFiller = drawn(MaskFiller(recipe, train_tokenizer(config, LINES)))
    return filler


def random_classifier(labels: tuple[str, ...] = ("good", "bad"), **model: Any) -> TextClassifier:
    """A model of labels, in words; model: settings that differ."""
    settings = {
        "task": "classification",
        "data": {"train": {"kind": "tsv", "path": "none.tsv", "label": 1}},
        "model": {"d_model": 16, "encoder": STACK, **model},
    }
    recipe = ClassificationRecipe.parse(settings, "recipe")
    tokenizer = train_tokenizer(SymbolsConfig(), LINES)
    classifier: TextClassifier = drawn(TextClassifier(recipe, tokenizer, list(labels)))
    return classifier


def random_answerer() -> Answerer:
    """A model of questions and passages, in words."""
    settings = {
        "task": "question-answering",
        "data": {"train": {"kind": "squad", "path": "none.json"}},
        "model": {"d_model": 16, "encoder": LEARNED, "segments": True},
    }
    recipe = QuestionAnsweringRecipe.parse(settings, "recipe")
    answerer: Answerer = drawn(Answerer(recipe, train_tokenizer(SymbolsConfig(), LINES)))
    return answerer


def random_embedder(
    config: TokenizerConfig, pooling: str = "mean", normalize: bool = True
) -> TextEmbedder:
    """A model that gives vectors."""
    settings = {
        "task": "embedding",
        "data": {"train": {"kind": "tsv", "path": "none.tsv", "second": 1}},
        "model": {"d_model": 16, "encoder": STACK, "pooling": pooling},
        "evaluation": {"normalize": normalize},
    }
    recipe = EmbeddingRecipe.parse(settings, "recipe")
    embedder: TextEmbedder = drawn(TextEmbedder(recipe, train_tokenizer(config, LINES)))
    return embedder


def random_generator(decoder: dict[str, Any]) -> Any:
    """A language model of words."""
    settings = {
        "task": "language-model",
        "data": {"train": {"kind": "text", "path": "none.txt"}},
        "text": {"tokenizer": {"kind": "symbols"}, "block": 32},
        "model": {"d_model": 16, "decoder": decoder},
        "decoding": {"method": "beam", "beam_size": 2, "max_tokens": 6},
    }
    recipe = LanguageModelRecipe.parse(settings, "recipe")
    return drawn(TrainedLanguageModel.new(recipe, train_tokenizer(SymbolsConfig(), LINES)))


def random_dialogue() -> Any:
    """A model of turns of two roles, in characters."""
    settings = {
        "task": "dialogue",
        "data": {"train": {"path": "none.jsonl"}, "roles": ["guest", "host"]},
        "text": {"block": 32},
        "model": {"d_model": 16, "decoder": LEARNED},
        "decoding": {"method": "beam", "beam_size": 2, "max_tokens": 6},
    }
    recipe = DialogueRecipe.parse(settings, "recipe")
    return drawn(TrainedDialogue.new(recipe, train_tokenizer(CharactersConfig(), LINES)))


def random_recommender() -> Any:
    """A model of histories of words."""
    settings = {
        "task": "recommendation",
        "data": {"train": {"kind": "csv", "path": "none.csv"}, "block": 8},
        "model": {"d_model": 16, "decoder": STACK},
        "evaluation": {"at": 5},
    }
    recipe = RecommendationRecipe.parse(settings, "recipe")
    return drawn(Recommender(recipe, train_tokenizer(SymbolsConfig(), LINES)))


PREDICTORS: dict[str, tuple[Callable[[], Any], str]] = {
    "masked": (lambda: random_filler(SymbolsConfig()), "the <mask> sat"),
    "labels": (random_classifier, "the cat sat"),
    "vectors": (lambda: random_embedder(SymbolsConfig()), "the cat"),
    "replies": (random_dialogue, "the cat"),
    "items": (random_recommender, "the cat"),
}
"""By kind of output: a maker, and a text to read."""
