"""Workload of the training benchmarks: sizes, sentences, batches, arithmetic, the machine.

It is the same for every library.
"""

from __future__ import annotations

import math
import os
import platform
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

VOCABULARY = 8000
PAD, UNK, BOS, EOS = range(4)
LABEL_SMOOTHING = 0.1
DROPOUT = 0.1
LONGEST = 100


class Size(NamedTuple):
    """Layers of each stack, width, inner width, heads."""

    layers: int
    width: int
    inner: int
    heads: int


SIZES = {
    "tiny": Size(4, 128, 256, 4),
    "small": Size(3, 256, 1024, 4),
    "base": Size(6, 512, 2048, 8),
    "big": Size(6, 1024, 4096, 16),
    "nllb": Size(12, 1024, 4096, 16),
}
BATCH_TOKENS = {"tiny": 4096, "small": 2048, "base": 1024, "big": 512, "nllb": 512}
"""Target positions of a batch on a CPU, so that a step takes about a second."""


class Lengths(NamedTuple):
    """Log-normal lengths of sentences, in tokens: mean, and spread of the logarithm."""

    mean: float
    spread: float


LENGTHS = {"news": Lengths(28, 0.55), "captions": Lengths(14, 0.35)}
Pair = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Batch:
    """Pairs of token ids, without BOS and EOS."""

    pairs: list[Pair]

    @property
    def source_tokens(self) -> int:
        """Real source tokens, EOS included."""
        return sum(len(source) + 1 for source, _ in self.pairs)

    @property
    def target_tokens(self) -> int:
        """Real target tokens to predict, EOS included."""
        return sum(len(target) + 1 for _, target in self.pairs)

    @property
    def padding(self) -> tuple[float, float]:
        """Share of source and of target positions that are padding in a rectangle."""
        sources = len(self.pairs) * (1 + max(len(source) for source, _ in self.pairs))
        targets = len(self.pairs) * (1 + max(len(target) for _, target in self.pairs))
        return 1 - self.source_tokens / sources, 1 - self.target_tokens / targets


def random_pairs(n: int, lengths: Lengths, seed: int = 0) -> list[Pair]:
    """Sentences of random ids; a target is about as long as its source (spread 0.12)."""
    chance = random.Random(seed)
    middle = math.log(lengths.mean) - lengths.spread**2 / 2

    def bounded(length: float) -> int:
        return min(LONGEST, max(3, round(length)))

    def sentence(length: int) -> list[int]:
        return [chance.randrange(4, VOCABULARY) for _ in range(length)]

    pairs = []
    for _ in range(n):
        source = bounded(chance.lognormvariate(middle, lengths.spread))
        target = bounded(source * chance.lognormvariate(0, 0.12))
        pairs.append((sentence(source), sentence(target)))
    return pairs


def batches(lengths: Lengths, tokens: int, n: int, seed: int = 0) -> list[Batch]:
    """`n` batches drawn from many, each of at most `tokens` target positions, padding included.

    Pairs are sorted by target length, then source length, as toolkits do it.
    """
    pairs = random_pairs(int(n * tokens / lengths.mean * 4), lengths, seed)
    pairs.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
    every: list[Batch] = []
    current: list[Pair] = []
    for pair in pairs:
        if current and (len(pair[1]) + 1) * (len(current) + 1) > tokens:
            every.append(Batch(current))
            current = []
        current.append(pair)
    return random.Random(seed + 1).sample(every, n)


def training_flops(size: Size, batch: Batch) -> float:
    """Arithmetic of one step: three times the forward pass, real tokens alone.

    Causal attention counts half.
    """
    layers, m, f, _ = size
    source, target = batch.source_tokens, batch.target_tokens
    per_layer = source * (4 * m * m + 2 * m * f) + target * (6 * m * m + 2 * m * f)
    per_layer += source * 2 * m * m  # keys and values of the memory
    for pair in batch.pairs:
        s, t = len(pair[0]) + 1, len(pair[1]) + 1
        per_layer += 2 * m * (s * s + t * t / 2 + s * t)
    return 6 * (layers * per_layer + target * m * VOCABULARY)


def peak_flops(dtype: torch.dtype = torch.float32, seconds: float = 3.0) -> float:
    """Best matrix product of 2,048 by 2,048, operations per CPU-second of one thread."""
    a = torch.randn(2048, 2048, dtype=dtype)
    out = torch.empty_like(a)
    fastest = math.inf
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        spent, _ = timed(lambda: torch.mm(a, a, out=out))
        fastest = min(fastest, spent.cpu)
    return 2 * 2048**3 / fastest


T = TypeVar("T")


class Spent(NamedTuple):
    """Seconds on the clock, and of all of this process's threads on a CPU."""

    wall: float
    cpu: float


def timed(action: Callable[[], T]) -> tuple[Spent, T]:
    """Duration and result of an action."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = action()
    return Spent(time.perf_counter() - wall, time.process_time() - cpu), result


def median(values: list[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def peak_memory() -> int:
    """The most memory, in bytes, that this process has had."""
    status = Path("/proc/self/status")
    if status.exists():  # the figure of getrusage is inherited from the process that started it
        lines = status.read_text(encoding="utf-8").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def machine() -> str:
    """Processor, cores and versions, for the head of a table."""
    model = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        lines = facts.read_text(encoding="utf-8").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
        model = names[0] if names else model
    return f"{model}, {os.cpu_count()} cores; PyTorch {torch.__version__}"
