"""Batches of items of like lengths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence


def in_batches(items: Iterable[int], lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Items by falling lengths, cut so that only a single item may exceed `tokens`."""
    order = sorted(items, key=lengths.__getitem__, reverse=True)
    at = 0
    while at < len(order):
        rows = order[at : at + max(1, tokens // lengths[order[at]])]
        at += len(rows)
        yield rows
