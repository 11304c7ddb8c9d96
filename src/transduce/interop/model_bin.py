"""Reader of `model.bin`, CTranslate2's file of named arrays.

    version, name of the specification, revision
    count, then for each array: name, rank, sizes, type, bytes, content
    count, then for each alias: name, name of its array

Numbers are little-endian; a string has its length, with a zero at its end, before it.
"""

from __future__ import annotations

import math
import mmap
import struct
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from transduce.errors import DataError, printable_name

VERSIONS = range(2, 7)
TYPED, ALIASED = 4, 3
"""Versions since which arrays name their type, and since which there are aliases."""
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
TYPES_OF_SIZES = {1: torch.int8, 2: torch.int16, 4: torch.float32}
SCALE = "_scale"
"""Suffix of the divisors of a quantised matrix, a number for each row or one for all."""
LARGEST_RANK = 8


class _Array(NamedTuple):
    shape: tuple[int, ...]
    dtype: torch.dtype
    offset: int

    def get_shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return self.shape


class ModelBin:
    """Arrays by name, as `safetensors` opens a file; quantised ones come as float32.

    spec: name of the specification.  scalars: the arrays without dimensions, as numbers.
    """

    def __init__(self, path: Path) -> None:
        """Map a file.  Raises DataError unless it is complete."""
        self.path = path
        try:
            with path.open("rb") as file:
                self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read ({error})") from None
        self._at = 0
        self.scalars: dict[str, float] = {}
        try:
            self._arrays = self._read()
            singles = [name for name, array in self._arrays.items() if not array.shape]
            self.scalars |= {name: self.get_tensor(name).item() for name in singles}
        except (struct.error, UnicodeDecodeError, IndexError, KeyError):
            raise DataError(
                f"{path} is not a complete model.bin of CTranslate2; copy it again"
            ) from None
        for name in singles:
            del self._arrays[name]

    def keys(self) -> list[str]:
        """Names of the arrays with dimensions, without those of scales."""
        scales = {f"{name}{SCALE}" for name in self._arrays}
        return [name for name in self._arrays if name not in scales]

    def get_slice(self, name: str) -> _Array:
        """Shape of an array."""
        return self._arrays[name]

    def get_tensor(self, name: str) -> Tensor:
        """A copy of an array."""
        array = self._arrays[name]
        end = array.offset + math.prod(array.shape) * array.dtype.itemsize
        content = bytearray(self._content[array.offset : end])
        tensor = torch.frombuffer(content, dtype=array.dtype).view(array.shape)
        if f"{name}{SCALE}" in self._arrays:
            scales = self.get_tensor(f"{name}{SCALE}")
        elif f"{name}{SCALE}" in self.scalars:
            scales = torch.tensor([self.scalars[f"{name}{SCALE}"]])
        else:
            return tensor
        if scales.dim() != 1 or len(scales) not in (1, len(tensor)):
            raise DataError(f"{self.path}: the scales of {name!r} do not match its rows")
        return tensor.float() / scales.float().view(-1, *[1] * (tensor.dim() - 1))

    def _read(self) -> dict[str, _Array]:
        (version,) = self._numbers("I")
        if version not in VERSIONS:
            raise DataError(
                f"{self.path} has version {version}, but only {VERSIONS[0]} to {VERSIONS[-1]} are "
                "supported; it is no model.bin of CTranslate2, or of a newer one"
            )
        self.spec = printable_name(self._string())
        _, count = self._numbers("II")
        arrays = dict(self._array(version) for _ in range(count))
        if version >= ALIASED:
            for _ in range(self._numbers("I")[0]):
                alias, name = self._string(), self._string()
                arrays[alias] = arrays[name]
                if (scale := arrays.get(f"{name}{SCALE}")) is not None:
                    arrays[f"{alias}{SCALE}"] = scale
        return arrays

    def _array(self, version: int) -> tuple[str, _Array]:
        name = self._string()
        (rank,) = self._numbers("B")
        if rank > LARGEST_RANK:
            raise IndexError
        shape = self._numbers(f"{rank}I")
        kind, size = self._numbers("BI")
        dtype = TYPES[kind] if version >= TYPED else TYPES_OF_SIZES[kind]
        size *= 1 if version >= TYPED else kind
        start, self._at = self._at, self._at + size
        if math.prod(shape) * dtype.itemsize != size or not size or self._at > len(self._content):
            raise IndexError
        return name, _Array(shape, dtype, start)

    def _string(self) -> str:
        (length,) = self._numbers("H")
        (text,) = self._numbers(f"{length}s")
        return bytes(text).rstrip(b"\0").decode()

    def _numbers(self, form: str) -> tuple[int, ...]:
        values = struct.unpack_from(f"<{form}", self._content, self._at)
        self._at += struct.calcsize(f"<{form}")
        return values
