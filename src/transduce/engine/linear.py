"""Linear layers of a PyTorch model in bf16 and int8, by the products of the engine, for all that
PyTorch computes beside it.  Everything between the products stays float32, and a row does not
depend on its neighbours."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn

from transduce.engine.library import engine_library
from transduce.engine.pair_shape import PRECISIONS
from transduce.errors import RunError
from transduce.nn.kernels.linear import Precision, replace_linear


class NativeLinear(nn.Module):
    """y = x Wᵀ + b for inference on a CPU, made from the float32 matrix."""

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: Precision) -> None:
        """weight (n, m), bias (n,).  Raises SettingError or, if damaged, RunError."""
        super().__init__()
        self.n_outputs, self.n_inputs = weight.shape
        self.precision = precision
        self._library: Any = engine_library()
        weight = weight.detach().float().contiguous()
        self.bias: Tensor | None
        self.register_buffer("bias", None if bias is None else bias.detach().float().contiguous())
        self._pointer = self._library.linear_new(
            PRECISIONS.index(precision),
            weight.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(),
            self.n_outputs,
            self.n_inputs,
        )
        if not self._pointer:
            raise RunError("a matrix of the model is not finite, or too large for the memory")
        weakref.finalize(self, self._library.linear_delete, self._pointer)

    def forward(self, x: Tensor) -> Tensor:
        """(…, m) -> (…, n)."""
        rows = x.reshape(-1, self.n_inputs).float().contiguous()
        y = torch.empty(len(rows), self.n_outputs)
        done = self._library.linear_apply(
            self._pointer, rows.data_ptr(), len(rows), y.data_ptr(), torch.get_num_threads()
        )
        if not done:
            raise MemoryError("the native engine ran out of memory")
        return y.view(*x.shape[:-1], self.n_outputs)


def to_native(model: nn.Module, precision: Precision) -> None:
    """Turn a CPU model's matrices into bf16 or int8, for inference alone; embeddings stay."""
    replace_linear(model, lambda weight, bias: NativeLinear(weight, bias, precision))
