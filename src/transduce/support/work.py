"""Portions of work, batches of items of like lengths, and the cores for them."""

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
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


def in_batches(items: Iterable[int], lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Items by falling lengths, cut so that only a single item may exceed `tokens`."""
    order = sorted(items, key=lengths.__getitem__, reverse=True)
    at = 0
    while at < len(order):
        rows = order[at : at + max(1, tokens // lengths[order[at]])]
        at += len(rows)
        yield rows
