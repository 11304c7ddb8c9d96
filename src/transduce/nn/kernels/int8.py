"""Matrix products in 8 bits: at least twice as fast on a CPU, a quarter of the memory.

Weights are rounded once, each row of a matrix by its own scale.  Activations are rounded
dynamically, each position by its own largest value, independent of the batch. Float rounding before
that still depends on the batch and occasionally changes a level: one line in some hundreds changes
(docs/promises.md). Activations have seven bits: without the newest instructions, sums of products
of eight bits overflow.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from transduce.errors import SettingError
from transduce.nn.kernels.linear import replace_linear

LEVELS = 63
ENGINE = "fbgemm"


class Int8Linear(nn.Module):
    """y = x Wᵀ + b for inference, made from the float32 matrix."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """weight (n, m), bias (n,)."""
        super().__init__()
        self.n_outputs, self.n_inputs = weight.shape
        self.bias: Tensor | None
        self.register_buffer("bias", None if bias is None else bias.detach().float())
        self._packed = _packed(weight.detach().float())

    def forward(self, x: Tensor) -> Tensor:
        """(…, m) -> (…, n)."""
        size = x.abs().amax(-1, keepdim=True)  # the same as a norm is ten times as slow
        size.clamp_(min=1e-20)  # a vector of zeros divided by zero would be no number
        y = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
            x / size, 1 / LEVELS, LEVELS + 1, self._packed
        )
        if self.bias is None:
            return y.mul_(size)  # type: ignore[no-any-return]
        return torch.addcmul(self.bias, y, size)

    def extra_repr(self) -> str:
        """Settings in PyTorch's description."""
        return f"{self.n_inputs} -> {self.n_outputs}"


def to_int8(model: nn.Module) -> None:
    """Convert the matrices of a model to 8 bits, for inference on the CPU only.

    Embeddings and other layers that are not linear are unchanged. Raises SettingError if the model
    is on another device, or PyTorch lacks int8 products.
    """
    if ENGINE not in torch.backends.quantized.supported_engines:
        raise SettingError("precision = 'int8' needs an x86 processor; use 'float32'")
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        raise SettingError("precision = 'int8' runs only on the CPU; set device = 'cpu'")
    replace_linear(model, Int8Linear)


def _packed(weight: Tensor) -> Any:
    """Matrix in the kernels' format."""
    scales = (weight.abs().amax(1) / 127).clamp(min=1e-20)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = ENGINE
    try:
        with warnings.catch_warnings():
            # PyTorch is to drop this kind of tensor one day; nothing as fast replaces it yet.
            warnings.filterwarnings("ignore", message=".*quantized tensor.*")
            rounded = torch.quantize_per_channel(
                weight, scales.double(), torch.zeros(len(weight), dtype=torch.long), 0, torch.qint8
            )
            return torch.ops.quantized.linear_prepack(rounded, None)
    finally:
        torch.backends.quantized.engine = before
