"""A tensor in float32, without PyTorch and NumPy."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple


class FloatWeight(NamedTuple):
    """A tensor in float32, row by row.  values: writable buffer of its numbers."""

    values: Any
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def address(self) -> int:
        """Address of the first element, which must exist."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.values))

    @property
    def is_finite(self) -> bool:
        """True if no element is infinite or NaN."""
        return not self.size or all(map(math.isfinite, memoryview(self.values).cast("B").cast("f")))
