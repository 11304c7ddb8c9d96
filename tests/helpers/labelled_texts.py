"""Labelled texts, and settings of small encoders for them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from helpers.tiny_run import training
from transduce.settings.sections import apply_overrides

TRANSFORMER = {"n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
BERT = {**TRANSFORMER, "positions": "learned", "max_positions": 64}
KINDS = {"animal": ["dog", "cat", "cow"], "plant": ["oak", "elm", "fir"], "stone": ["ore", "jet"]}
FILLERS = ["the", "a", "red", "big", "saw", "was", "here", "old", "it", "and"]


def sentences(n: int, seed: int = 0) -> list[tuple[str, str]]:
    """Texts with one telling word, and its kind."""
    chance = random.Random(seed)
    result = []
    for _ in range(n):
        kind = chance.choice(sorted(KINDS))
        words = chance.choices(FILLERS, k=chance.randint(1, 7))
        words.insert(chance.randint(0, len(words)), chance.choice(KINDS[kind]))
        result.append((" ".join(words), kind))
    return result


def settings(path: Path, /, *overrides: str, **sections: Any) -> dict[str, Any]:
    """A recipe for the tab-separated texts and labels in `path`."""
    recipe = {
        "task": "classification",
        "data": {"train": {"kind": "tsv", "path": str(path)}, "hold_out": 0.1},
        "text": {"tokenizer": {"kind": "characters"}, "max_length": 64},
        "model": {"d_model": 32, "encoder": TRANSFORMER},
        "training": training(12, 512, 5e-3, validate_every=6, label_smoothing=0.0),
        **sections,
    }
    return apply_overrides(recipe, overrides)
