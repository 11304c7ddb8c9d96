"""Weights of a run in float32, read without PyTorch and NumPy: importing either takes longer than a
small run."""

from __future__ import annotations

import io
import math
import os
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from transduce.errors import RunError
from transduce.limits import from_json
from transduce.nn.kernels.float_weight import FloatWeight
from transduce.training.weight_names import names_today
from transduce.training.weights_header import (
    LOW_RANK,
    check_format,
    check_sum,
    checked_file,
    checksum_of,
)

_HEADER_BYTES = 100_000_000
"""Limit on the header, as in the safetensors library."""


class _Type(NamedTuple):
    """A type of numbers: its name in PyTorch, and bytes of one."""

    name: str
    width: int


_TYPES = {
    "F64": _Type("float64", 8),
    "F32": _Type("float32", 4),
    "F16": _Type("float16", 2),
    "BF16": _Type("bfloat16", 2),
}
"""By their names in a safetensors file."""


class _Stored(NamedTuple):
    """A tensor of a file."""

    type: _Type
    shape: tuple[int, ...]
    data: bytearray

    def values(self) -> FloatWeight:
        """The tensor in float32."""
        data: bytearray | array[float] = self.data
        if self.type.name == "bfloat16":  # the upper half of a float32
            data = bytearray(2 * len(self.data))
            data[2::4], data[3::4] = self.data[::2], self.data[1::2]
        elif self.type.name != "float32":
            form = "<d" if self.type.name == "float64" else "<e"
            data = array("f", (value for (value,) in struct.iter_unpack(form, self.data)))
        return FloatWeight(data, self.shape)


def read_plain_weights(path: Path) -> dict[str, FloatWeight]:
    """Weights by their present names, in float32.

    Raises RunError if the file is missing, damaged or of a newer format, and for weights of other
    types, or of an adapter that is not merged.
    """
    with checked_file(path), path.open("rb") as file:
        try:
            texts, header, begin = _header(file)
            check_format(path, texts)
            stored = dict(_stored(file, path, header, begin))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its header is damaged: {error}") from None
    check_sum(path, texts, lambda: _checksum(stored))
    if any(name.rpartition(".")[2] in LOW_RANK for name in stored):
        raise RunError(f"{path} has a low-rank adapter; merge it with transduce merge")
    names = names_today(stored)
    return {names[name]: tensor.values() for name, tensor in stored.items()}


def _header(file: io.BufferedReader) -> tuple[dict[str, str], dict[str, Any], int]:
    """Texts, places of the tensors by name, and the byte where they begin."""
    begin = 8 + int.from_bytes(file.read(8), "little")
    if begin > min(os.fstat(file.fileno()).st_size, _HEADER_BYTES):
        raise ValueError("its header is cut off")
    header = from_json(file.read(begin - 8))
    texts = {str(name): str(text) for name, text in header.pop("__metadata__", {}).items()}
    return texts, header, begin


def _stored(
    file: io.BufferedReader, path: Path, header: dict[str, Any], begin: int
) -> Iterator[tuple[str, _Stored]]:
    """Tensors by name.  Raises ValueError unless they fill the file one after another."""
    end, room = 0, os.fstat(file.fileno()).st_size - begin
    for name, told in sorted(header.items(), key=lambda one: tuple(one[1]["data_offsets"])):
        if told["dtype"] not in _TYPES:
            raise RunError(f"{path}: {name!r} has the unsupported type {told['dtype']}")
        kind, shape = _TYPES[told["dtype"]], tuple(told["shape"])
        size = kind.width * math.prod(shape)
        if any(length < 0 for length in shape) or told["data_offsets"] != [end, end + size]:
            raise ValueError(f"{name!r} is in a wrong place")
        end += size
        data = bytearray(size if end <= room else 0)
        if end > room or file.readinto(data) != size:
            raise ValueError("it is cut off")
        yield name, _Stored(kind, shape, data)
    if end != room:
        raise ValueError("it is too long")


def _checksum(stored: dict[str, _Stored]) -> str:
    return checksum_of(
        (name, f"torch.{tensor.type.name}", tensor.shape, tensor.data)
        for name, tensor in sorted(stored.items())
    )
