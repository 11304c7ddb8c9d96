"""A German-English toy language of a dozen words, and a run that learns it in seconds."""

import random
from pathlib import Path

import transduce
from helpers.tiny_run import Pair, stack, training, write_tsv

ADJECTIVES = {"roten": "red", "alten": "old", "neuen": "new", "guten": "good"}
NOUNS = {"Hund": "dog", "Baum": "tree", "Mann": "man", "Tisch": "table", "Stuhl": "chair"}
VERBS = {"sehe": "see", "kaufe": "buy", "suche": "seek"}


def toy_pairs(n: int, seed: int = 0) -> list[Pair]:
    """Sentences such as "Heute kaufe ich den alten Baum." and "I buy the old tree today."."""
    generator = random.Random(seed)
    pairs = []
    for _ in range(n):
        verb, noun = (generator.choice(sorted(words)) for words in (VERBS, NOUNS))
        adjectives = generator.sample(sorted(ADJECTIVES), generator.randint(0, 2))
        german = " ".join(["den", *adjectives, noun])
        english = " ".join(["the", *(ADJECTIVES[a] for a in adjectives), NOUNS[noun]])
        if generator.random() < 0.5:
            pairs.append((f"Heute {verb} ich {german}.", f"I {VERBS[verb]} {english} today."))
        else:
            pairs.append((f"Ich {verb} {german}.", f"I {VERBS[verb]} {english}."))
    return pairs


def train_toy(directory: Path, steps: int = 100) -> Path:
    """Train on the toy language; returns the run directory."""
    data = write_tsv(directory / "toy.tsv", toy_pairs(2000))
    layer = stack(n_layers=1, n_heads=4, d_ff=128)
    settings = {
        "task": "translation",
        "data": {"train": {"kind": "tsv", "path": str(data)}, "hold_out": 0.02},
        "text": {"source": {"kind": "bpe", "size": 390}},
        "model": {"d_model": 64, "tie": "three-way", "encoder": layer, "decoder": layer},
        "training": training(steps, 2000, 4e-3, log_every=50),
        "evaluation": {"validation_pairs": 16},
    }
    run, _ = transduce.train(settings, directory / "run")
    return run
