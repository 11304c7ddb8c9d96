"""Relatedness of SICK's sentences without an encoder: word counts, tf-idf, mean word vectors.

    TRANSDUCE_DATA=DIRECTORY python benchmarks/relatedness.py [RUN]

Spearman's and Pearson's coefficients of cosines on the test pairs, times 100.  RUN: an embedding
run, such as an imported MiniLM; the vectors of its tokens are averaged, without its layers.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import transduce
from transduce.data.labelled import LabelledTabSeparated, ScoredPair, read_scored
from transduce.metrics.correlation import correlation_scores
from transduce.tasks.text_encoder.embedding import TextEmbedder

Vector = dict[str, float]


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def cosine(a: Vector, b: Vector) -> float:
    length = math.sqrt(sum(x * x for x in a.values()) * sum(x * x for x in b.values()))
    return sum(x * b.get(word, 0.0) for word, x in a.items()) / length


def measure(name: str, pairs: list[ScoredPair], similarity: Callable[[str, str], float]) -> None:
    found = np.array([similarity(*pair.texts) for pair in pairs])
    scores = correlation_scores(found, np.array([pair.score for pair in pairs]))
    print(f"{name:<28}", *(f"{key} {value:.2f}" for key, value in scores.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?")
    run = parser.parse_args().run
    root = Path(os.environ["TRANSDUCE_DATA"], "sick")
    train, test = (
        list(read_scored(LabelledTabSeparated(path=Path(f), text=1, second=2, label=3), root))
        for f in ("train.tsv", "test.tsv")
    )
    texts = {text for pair in train for text in pair.texts}
    frequency = Counter(word for text in texts for word in set(words(text)))

    def weighted(text: str, weight: Callable[[str], float]) -> Vector:
        return {word: n * weight(word) for word, n in Counter(words(text)).items()}

    def rarity(word: str) -> float:
        return math.log((len(texts) + 1) / (frequency[word] + 1))

    for name, weight in (("word counts", lambda word: 1.0), ("tf-idf", rarity)):
        measure(name, test, lambda a, b, w=weight: cosine(weighted(a, w), weighted(b, w)))
    if run is not None:
        embedder = transduce.load(run, "cpu").predictor
        assert isinstance(embedder, TextEmbedder)
        table = embedder.model.front_end.embedding.weight.detach()

        def mean(text: str) -> torch.Tensor:
            return table[torch.tensor(embedder.tokenizer.encode(text))].mean(0)

        measure(
            f"mean word vectors of {run.name}",
            test,
            lambda a, b: float(torch.cosine_similarity(mean(a), mean(b), dim=0)),
        )


if __name__ == "__main__":
    main()
