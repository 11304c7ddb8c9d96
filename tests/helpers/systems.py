"""Outputs of systems that are as good as one likes, for metrics."""

import random

WORDS = [*"abcdefgh", "cat", "dog", "mat", "tree", "house", "sleeps", "under", "small"]


def sentences(n: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(4, 12))) + "." for _ in range(n)]


def corrupted(lines: list[str], share: float, seed: int = 1) -> list[str]:
    """Each word replaced by a random one with probability `share`."""
    rng = random.Random(seed)
    return [
        " ".join(rng.choice(WORDS) if rng.random() < share else word for word in line.split())
        for line in lines
    ]


def single(lines: list[str]) -> list[list[str]]:
    return [[line] for line in lines]
