"""Attention forwards and back on one thread: PyTorch's fused kernels, and ours for bfloat16.

    python benchmarks/attention.py

Milliseconds of CPU time, medians of rounds in which the three take turns, as Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from workload import machine, median, timed

from transduce.nn.kernels.bf16_attention import bf16_attention
from transduce.training.memory import keep_freed_memory


class Shape(NamedTuple):
    """Sentences, their tokens, heads, and the width of each."""

    sentences: int
    tokens: int
    heads: int
    width: int


SHAPES = (Shape(146, 28, 4, 32), Shape(46, 25, 8, 64), Shape(16, 64, 8, 64), Shape(8, 128, 8, 64))

WAYS: dict[str, tuple[torch.dtype, Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "fused, float32": (torch.float32, scaled_dot_product_attention),
    "fused, bfloat16": (torch.bfloat16, scaled_dot_product_attention),
    "ours, bfloat16": (torch.bfloat16, lambda q, k, v: bf16_attention(q, k, v, None)),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    keep_freed_memory()
    print(machine(), file=sys.stderr)
    print("| sentences, tokens, heads, width |", " | ".join(WAYS), "|")
    print("|-|" + "-:|" * len(WAYS))
    for shape in SHAPES:
        spent = [f"{1000 * seconds:.1f}" for seconds in medians(shape, options.rounds)]
        print("|", ", ".join(map(str, shape)), "|", " | ".join(spent), "|")
    return 0


def medians(shape: Shape, rounds: int) -> list[float]:
    """CPU-seconds of each way, forwards and back, for queries, keys and values of one product."""
    steps = [step(shape, *way) for way in WAYS.values()]
    for once in steps:  # the first compiles and allocates
        once()
    every = [[timed(once)[0].cpu for once in steps] for _ in range(rounds)]
    return [median(column) for column in zip(*every, strict=True)]


def step(
    shape: Shape, dtype: torch.dtype, attend: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Callable[[], None]:
    """One pass forwards and back, as a layer makes it."""
    b, t, h, d = shape
    projected = torch.randn(b, t, 3 * h * d, dtype=dtype, requires_grad=True)
    gradient = torch.randn(b, t, h * d, dtype=dtype)

    def once() -> None:
        projected.grad = None
        q, k, v = (part.view(b, t, h, d).transpose(1, 2) for part in projected.chunk(3, -1))
        attend(q, k, v).transpose(1, 2).flatten(2).backward(gradient)

    return once


if __name__ == "__main__":
    sys.exit(main())
