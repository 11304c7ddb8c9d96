"""Speed of one matrix product: PyTorch's kernels against the packed ones of the native engine.

    python benchmarks/products.py

Thousand million operations (a multiplication and an addition are two) per CPU-second, the best of
several turns.  PyTorch's matrix lies as `transduce.load` stores it.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and "OMP_NUM_THREADS" not in os.environ:  # read when torch is loaded
    os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor
from workload import machine

from transduce.engine.linear import NativeLinear
from transduce.nn.kernels.linear import Precision

SHAPES = ((1, 512, 2048), (5, 512, 2048), (1, 512, 8000), (32, 512, 512), (128, 512, 512))
"""Rows, inputs, outputs."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--turns", type=int, default=20, help="of each kernel")
    parser.add_argument("--json", action="store_true", help="one object instead of a table")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found = {" × ".join(map(str, shape)): measured(*shape, options.turns) for shape in SHAPES}
    if options.json:
        print(json.dumps(found))
        return 0
    names = list(next(iter(found.values())))
    print(f"{machine()}; 1 thread\n\n| rows × inputs × outputs | {' | '.join(names)} |")
    print("|-|" + "-:|" * len(names))
    for shape, speeds in found.items():
        print(f"| {shape} | {' | '.join(f'{speed:.0f}' for speed in speeds.values())} |")
    return 0


@torch.inference_mode()
def measured(rows: int, inputs: int, outputs: int, turns: int) -> dict[str, float]:
    """Speed of each kernel; they take turns."""
    torch.manual_seed(0)
    x, weight = torch.randn(rows, inputs), torch.randn(outputs, inputs)
    stored = weight.t().contiguous().t() if outputs >= inputs else weight
    narrow_x, narrow = x.bfloat16(), weight.bfloat16()
    kernels: dict[str, Callable[[], Tensor]] = {
        "PyTorch float32": lambda: F.linear(x, stored),
        "native float32": NativeProduct(weight, x, "float32"),
        "PyTorch bf16": lambda: F.linear(narrow_x, narrow),
        "native bf16": NativeProduct(weight, x, "bf16"),
        "native int8": NativeProduct(weight, x, "int8"),
    }
    operations = 2 * rows * inputs * outputs
    repeats = max(1, int(2e8 / operations))
    best = dict.fromkeys(kernels, 0.0)
    for _ in range(turns):
        for name, kernel in kernels.items():
            begin = time.process_time()
            for _ in range(repeats):
                kernel()
            spent = time.process_time() - begin
            best[name] = max(best[name], repeats * operations / spent / 1e9)
    return best


class NativeProduct:
    """A product by the engine, the rounding of its inputs included."""

    def __init__(self, weight: Tensor, x: Tensor, precision: Precision) -> None:
        self.linear = NativeLinear(weight, None, precision)
        self.x = x

    def __call__(self) -> Tensor:
        return self.linear(self.x)  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
