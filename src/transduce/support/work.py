"""Portions of work, and the cores for it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def available_cores() -> int:
    """Number of cores available to this process."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items, the last possibly shorter."""
    rest = iter(items)
    while chunk := list(itertools.islice(rest, size)):
        yield chunk
