"""Names of precisions, and tensors in float32 without PyTorch and NumPy."""

import ctypes
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Precision = Literal["float32", "bf16", "int8"]


class FloatWeight(NamedTuple):
    """A tensor in float32, row by row, that is read when needed.

    read: makes a writable buffer of its numbers.  release: gives the memory back that reading took.
    levels: of a matrix in int8, makes buffers of its levels and of the divisors of its rows.
    """

    shape: tuple[int, ...]
    read: Callable[[], Any]
    release: Callable[[], None] = lambda: None
    levels: Callable[[], tuple[Any, Any]] | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def address_of(numbers: Any) -> int:
    """Address of a writable buffer, which must not be empty."""
    return ctypes.addressof(ctypes.c_char.from_buffer(numbers))


def are_finite(numbers: Any) -> bool:
    """True if no element of a buffer of float32 is infinite or NaN."""
    return all(map(math.isfinite, memoryview(numbers).cast("B").cast("f")))
