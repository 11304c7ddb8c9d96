"""Weights of a run, read in place: without PyTorch and NumPy, and without a copy of the file.

The file is mapped into memory.  Its pages count for the process only from a reading of a tensor to
its release, after which they are read again where they are needed.
"""

from __future__ import annotations

import math
import mmap
import struct
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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

TYPES = {
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}
"""Types in PyTorch and bytes of a number, by the names of types in a safetensors file."""


class StoredTensor(NamedTuple):
    """A tensor of a file.  bytes: its place there, writable without an effect on the file.
    release: gives the memory back that reading it took."""

    dtype: str
    shape: tuple[int, ...]
    bytes: memoryview
    release: Callable[[], None]

    def floats(self) -> Any:
        """Buffer of the numbers in float32; in place if they have that type."""
        if self.dtype == "float32":
            return self.bytes
        if self.dtype == "bfloat16":  # the upper half of a float32
            wide = bytearray(2 * len(self.bytes))
            wide[2::4], wide[3::4] = self.bytes[::2], self.bytes[1::2]
            return wide
        form = "<d" if self.dtype == "float64" else "<e"
        return array("f", (number for (number,) in struct.iter_unpack(form, self.bytes)))


def stored_weights(path: Path) -> dict[str, StoredTensor]:
    """Weights of a file by their present names.  Raises RunError if it is missing, damaged or of a
    newer format, and for an unsupported type."""
    with checked_file(path), path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        start = 8 + int.from_bytes(mapped[:8], "little")
        if start > len(mapped):
            raise ValueError("its header")
        header = from_json(mapped[8:start])
        try:
            texts = dict(header.pop("__metadata__", {}))
            check_format(path, texts)
            stored = _stored(path, header, mapped, start)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"of another form: {error!r}") from None
    check_sum(path, texts, lambda: checksum_of(_in_order(stored)))
    return {new: stored[name] for name, new in names_today(stored).items()}


def _stored(
    path: Path, header: dict[str, Any], mapped: mmap.mmap, start: int
) -> dict[str, StoredTensor]:
    """Tensors by name.  Raises ValueError unless they fill the file from `start`, without gaps."""
    stored, at = {}, start
    for name, tensor in sorted(header.items(), key=lambda entry: entry[1]["data_offsets"]):
        if (kind := TYPES.get(tensor["dtype"])) is None:
            raise RunError(f"{path}: {name!r} has the unsupported type {tensor['dtype']}")
        dtype, width = kind
        shape, (begin, end) = tuple(tensor["shape"]), tensor["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
            raise ValueError(f"sizes of {name!r}")
        if start + begin != at or end - begin != width * math.prod(shape):
            raise ValueError(f"place of {name!r}")
        at = start + end
        places = memoryview(mapped)[start + begin : at]
        stored[name] = StoredTensor(dtype, shape, places, _releasing(mapped, start + begin, at))
    if at != len(mapped):
        raise ValueError("its length")
    return stored


def read_plain_weights(path: Path) -> dict[str, FloatWeight]:
    """Weights in float32 by their present names.  Raises RunError as `stored_weights`, and for
    other types, or an adapter that is not merged."""
    stored = stored_weights(path)
    for name, tensor in stored.items():
        if "float" not in tensor.dtype:
            raise RunError(f"{path}: {name!r} has the unsupported type {tensor.dtype}")
        if name.rpartition(".")[2] in LOW_RANK:
            raise RunError(f"{path} has a low-rank adapter; merge it with transduce merge")
    return {
        name: FloatWeight(tensor.shape, tensor.floats, tensor.release)
        for name, tensor in stored.items()
    }


def _in_order(stored: dict[str, StoredTensor]) -> Any:
    """Parts of the checksum."""
    for name, tensor in sorted(stored.items()):
        yield name, f"torch.{tensor.dtype}", tensor.shape, tensor.bytes
        tensor.release()


def _releasing(mapped: mmap.mmap, begin: int, end: int) -> Callable[[], None]:
    """Function that drops the pages of a range."""
    begin -= begin % mmap.PAGESIZE

    def release() -> None:
        if hasattr(mmap, "MADV_DONTNEED") and end > begin:
            mapped.madvise(mmap.MADV_DONTNEED, begin, end - begin)

    return release
