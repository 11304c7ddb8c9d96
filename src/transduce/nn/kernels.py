"""Layers in reduced precision, weights laid out for inference, and the threads of PyTorch on a
CPU."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.nn.heads.vocabulary import VocabularyHead


@contextmanager
def restored_threads() -> Iterator[None]:
    """Restore the number of threads at the end."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def replace_linear(model: nn.Module, make: Callable[[Tensor, Tensor | None], nn.Module]) -> None:
    """Replace each linear layer and each vocabulary head by make(weight, bias)."""
    for module in list(model.modules()):
        for name, part in list(module.named_children()):
            if isinstance(part, nn.Linear | VocabularyHead):
                product = make(part.weight, part.bias)
                if isinstance(part, VocabularyHead):  # a shortlist picks some of its rows
                    product.weight = part.weight
                setattr(module, name, product)


class Bf16Linear(nn.Module):
    """y = x Wᵀ + b for inference, made from the float32 matrix; in and out are float32."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """weight (n, m), bias (n,)."""
        super().__init__()
        self.narrow: Tensor
        self.bias: Tensor | None
        self.register_buffer("narrow", weight.detach().to(torch.bfloat16))
        self.register_buffer("bias", None if bias is None else bias.detach().float())

    def forward(self, x: Tensor) -> Tensor:
        """(…, m) -> (…, n)."""
        y = F.linear(x.to(torch.bfloat16), self.narrow).float()
        return y if self.bias is None else y.add_(self.bias)


def to_bf16(model: nn.Module) -> None:
    """Turn the matrices of a model on a GPU into bfloat16, for inference alone; embeddings stay."""
    replace_linear(model, Bf16Linear)


def relative_slowdown(device: torch.device) -> str:
    """Warning for a CPU with slow bfloat16 products, as most have; else "".  Measured within
    milliseconds, since processor flags do not determine the speed."""
    if device.type != "cpu" or (ratio := _relative_time()) < 2:
        return ""
    return (
        f"bf16: a matrix product takes {ratio:.0f} times as long in bfloat16 as in float32 on this "
        "processor; use float32"
    )


def slow_bf16_hint(device: torch.device) -> str:
    """Hint for float32 training on a CPU with much faster bfloat16 products; else ""."""
    if device.type != "cpu" or (ratio := _relative_time()) > 0.6:
        return ""
    return (
        f"this processor multiplies matrices {1 / ratio:.1f} times as fast in bfloat16 as in "
        'float32: training.precision = "bf16" may save time'
    )


def _relative_time() -> float:
    """Time of a bfloat16 product relative to float32: at most 0.5 with AMX, 5 and more without."""
    operands = [torch.ones(256, 256, dtype=dtype) for dtype in (torch.bfloat16, torch.float32)]
    with restored_threads():
        torch.set_num_threads(1)  # threads wait for each other on a busy machine
        rounds = [[_seconds(x) for x in operands] for _ in range(10)]
    bf16, float32 = (min(times) for times in zip(*rounds, strict=True))
    return float(bf16 / float32)


def _seconds(x: Tensor) -> float:
    begin = time.perf_counter()
    F.linear(x, x)
    return time.perf_counter() - begin


def lay_out_for_few_rows(model: nn.Module) -> None:
    """Store matrices with more outputs than inputs column by column, before they are filled;
    shapes are unchanged.

    Products of few rows then read memory contiguously: a row times the softmax matrix takes 0.35
    to 0.4 of the time, and 32 rows 0.8 (docs/measurements/performance.md).
    """
    for module in model.modules():
        if isinstance(module, nn.Linear | VocabularyHead):
            n_outputs, n_inputs = module.weight.shape
            if n_outputs >= n_inputs:
                module.weight.data = torch.empty(n_inputs, n_outputs).t()
