"""Weights of a run as NumPy arrays, without PyTorch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.errors import RunError
from transduce.training.weight_names import names_today
from transduce.training.weights_header import LOW_RANK, SUM, opened

_TYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Name of a type in a safetensors file, and in PyTorch."""


class _Stored(NamedTuple):
    """A tensor in a file: name of its type in PyTorch, shape, bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: NDArray[np.uint8]

    def values(self) -> NDArray[np.float32]:
        """A copy of the tensor in float32; the file may change later."""
        if self.dtype == "bfloat16":  # the upper half of a float32
            wide = self.data.view("<u2").astype("<u4") << 16
            return wide.view("<f4").reshape(self.shape)
        return self.data.view(np.dtype(self.dtype)).astype("<f4").reshape(self.shape)


def read_arrays(path: Path) -> dict[str, NDArray[np.float32]]:
    """Weights by their present names, in float32.

    Raises RunError if the file is missing, damaged or of a newer format, and for weights of other
    types, or of an adapter that is not merged.
    """
    with opened(path, "np") as (file, metadata):
        names = names_today(file.keys())
    stored = dict(_stored(path))  # `opened` has checked the header
    if SUM in metadata and metadata[SUM] != _checksum(stored):
        raise RunError(f"{path} is damaged (checksum mismatch); copy or train it again")
    if any(name.rpartition(".")[2] in LOW_RANK for name in stored):
        raise RunError(f"{path} has a low-rank adapter; merge it with transduce merge")
    return {names[name]: tensor.values() for name, tensor in stored.items()}


def _stored(path: Path) -> Iterator[tuple[str, _Stored]]:
    """Tensors of a checked safetensors file by name, mapped into memory."""
    data: NDArray[np.uint8] = np.memmap(path, np.uint8, "r")
    begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header: dict[str, Any] = json.loads(data[8:begin].tobytes())
    header.pop("__metadata__", None)
    for name, told in header.items():
        if told["dtype"] not in _TYPES:
            raise RunError(f"{path}: {name!r} has the unsupported type {told['dtype']}")
        start, end = told["data_offsets"]
        bytes_ = data[begin + start : begin + end]
        yield name, _Stored(_TYPES[told["dtype"]], tuple(told["shape"]), bytes_)


def _checksum(stored: dict[str, _Stored]) -> str:
    """The same as `training.weights.checksum`."""
    digest = hashlib.sha256()
    for name in sorted(stored):
        tensor = stored[name]
        digest.update(f"{name} torch.{tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.data.data)
    return digest.hexdigest()
