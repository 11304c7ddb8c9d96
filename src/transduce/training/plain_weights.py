"""Weights of a run in float32, read without PyTorch and NumPy, which import slowly."""

from __future__ import annotations

import struct
from array import array
from pathlib import Path
from typing import NamedTuple

import safetensors

from transduce.errors import RunError
from transduce.nn.kernels.float_weight import FloatWeight
from transduce.support.limits import from_json
from transduce.training.weight_names import names_today
from transduce.training.weights_header import (
    LOW_RANK,
    check_format,
    check_sum,
    checked_file,
    checksum_of,
)

_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Names of types in PyTorch, by their names in a safetensors file."""


class _Stored(NamedTuple):
    """A tensor of a file."""

    dtype: str
    shape: tuple[int, ...]
    data: bytearray

    def values(self) -> FloatWeight:
        data: bytearray | array[float] = self.data
        if self.dtype == "bfloat16":  # the upper half of a float32
            data = bytearray(2 * len(self.data))
            data[2::4], data[3::4] = self.data[::2], self.data[1::2]
        elif self.dtype != "float32":
            form = "<d" if self.dtype == "float64" else "<e"
            data = array("f", (value for (value,) in struct.iter_unpack(form, self.data)))
        return FloatWeight(data, self.shape)


def read_plain_weights(path: Path) -> dict[str, FloatWeight]:
    """Weights in float32 by their present names.  Raises RunError if the file is missing, damaged
    or of a newer format, and for other types, or an adapter that is not merged."""
    with checked_file(path):
        content = path.read_bytes()
        tensors = safetensors.deserialize(content)  # type: ignore[no-untyped-call]
        end_of_header = 8 + int.from_bytes(content[:8], "little")
        texts = from_json(content[8:end_of_header]).get("__metadata__", {})
    del content  # each tensor has a copy
    check_format(path, texts)
    stored = {}
    for name, tensor in tensors:
        if (dtype := _TYPES.get(tensor["dtype"])) is None:
            raise RunError(f"{path}: {name!r} has the unsupported type {tensor['dtype']}")
        stored[name] = _Stored(dtype, tuple(tensor["shape"]), tensor["data"])
    check_sum(path, texts, lambda: _checksum(stored))
    if any(name.rpartition(".")[2] in LOW_RANK for name in stored):
        raise RunError(f"{path} has a low-rank adapter; merge it with transduce merge")
    names = names_today(stored)
    return {names[name]: tensor.values() for name, tensor in stored.items()}


def _checksum(stored: dict[str, _Stored]) -> str:
    return checksum_of(
        (name, f"torch.{tensor.dtype}", tensor.shape, tensor.data)
        for name, tensor in sorted(stored.items())
    )
