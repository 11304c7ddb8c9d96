"""Translators with random weights, of any shape, that behave like trained ones where it counts."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn

from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.tasks.translation.training import new_translator
from transduce.tasks.translation.translator import Translator
from transduce.text import BOS, EOS, PAD
from transduce.text.tokenizer import Normalizer, SymbolTokenizer

WORDS = tuple(f"w{i}" for i in range(36))
LONGEST = 12
RECURRENT: dict[str, Any] = {"kind": "recurrent", "dropout": 0.0}
CONVOLUTION: dict[str, Any] = {"kind": "convolution", "n_layers": 2, "dropout": 0.0}
MEMORY: dict[str, Any] = {"kind": "memory-network", "window": 3, "hops": 2, "dropout": 0.0}
STACK = {"n_layers": 2, "n_heads": 2, "d_ff": 24, "dropout": 0.0, "max_positions": 64}


def random_recipe(
    encoder: dict[str, Any], decoder: dict[str, Any], decoding: dict[str, Any], **model: Any
) -> TranslationRecipe:
    """A recipe without data; one vocabulary where all matrices are tied, else two."""
    text: dict[str, Any] = {"source": {"kind": "symbols"}}
    if model.get("tie", "three-way") != "three-way":
        text["target"] = {"kind": "symbols"}
    stacks = {"encoder": {**STACK, **encoder}, "decoder": {**STACK, **decoder}}
    stacks = {
        side: stack if stack.get("kind", "transformer") == "transformer" else given
        for (side, stack), given in zip(stacks.items(), (encoder, decoder), strict=True)
    }
    settings = {
        "task": "translation",
        "data": {"train": {"kind": "tsv", "path": "none.tsv"}, "filters": {"max_length": LONGEST}},
        "text": text,
        "model": {"d_model": 16, **model, **stacks},
        "decoding": decoding,
    }
    return TranslationRecipe.parse(settings, "recipe")


def random_translator(
    encoder: dict[str, Any] | None = None,
    decoder: dict[str, Any] | None = None,
    words: tuple[str, ...] = WORDS,
    trained: bool = True,
    decoding: dict[str, Any] | None = None,
    **model: Any,
) -> Translator:
    """trained: padding and beginning of sentence are as unlikely as training makes them."""
    torch.manual_seed(1)
    tokenizer = SymbolTokenizer(words, Normalizer())
    recipe = random_recipe(encoder or {}, decoder or {}, decoding or {}, **model)
    made = new_translator(recipe, tokenizer, tokenizer)
    made.model.eval()
    with torch.no_grad():
        for parameter in made.model.parameters():
            parameter.add_(0.25 * torch.randn(parameter.shape))
        if trained:
            _make_likely(made.model)
    return made


def untrained(encoder: dict[str, Any], decoder: dict[str, Any], **decoding: Any) -> Translator:
    """A translator of random weights alone, which hardly ends: its outputs are cut short."""
    short = {"max_length_ratio": 1.0, "max_length_extra": 3, **decoding}
    return random_translator(encoder, decoder, trained=False, decoding=short)


def _make_likely(model: Any) -> None:
    """One dimension that is the same everywhere says that outputs end, and never begin."""
    norms = [module for module in model.decoder.modules() if isinstance(module, nn.LayerNorm)]
    norms[-1].weight[0], norms[-1].bias[0] = 0.0, 8.0
    model.head.weight[:, 0] = 0.0
    model.head.weight[EOS, 0] = 0.2
    model.head.weight[[PAD, BOS]] = 0.0
    model.head.weight[[PAD, BOS], 0] = -4.0


def some_lines(count: int = 24) -> list[str]:
    """Lines of words; one is unknown, two are blank, and the last goes in pieces."""
    chance = random.Random(0)
    lines = [" ".join(chance.choices(WORDS, k=chance.randint(1, 11))) for _ in range(count)]
    return [*lines, "", " ", "unknown w1", " ".join(WORDS[:30])]
