"""The best monotonic alignment, against all of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from transduce.speech.monotonic import durations


def best_by_trial(scores: np.ndarray) -> list[int]:
    n, t = scores.shape
    best, highest = [0], -np.inf
    for cuts in combinations(range(1, t), n - 1):
        edges = [0, *cuts, t]
        total = sum(scores[i, edges[i] : edges[i + 1]].sum() for i in range(n))
        if total > highest:
            best, highest = list(np.diff(edges)), total
    return [int(length) for length in best]


def test_the_best_of_all_alignments() -> None:
    random = np.random.default_rng(3)
    sizes = [(1, 1), (1, 6), (3, 3), (4, 9), (5, 8)]
    scores = np.full((len(sizes), 5, 9), 50.0, np.float32)  # what padding says does not matter
    for row, (n, t) in enumerate(sizes):
        scores[row, :n, :t] = random.normal(size=(n, t))
    lengths = durations(scores, [n for n, _ in sizes], [t for _, t in sizes])
    for row, (n, t) in enumerate(sizes):
        assert lengths[row].tolist() == best_by_trial(scores[row, :n, :t]) + [0] * (5 - n)
