"""Batches of items that are ordered by length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def in_batches(order: Sequence[int], lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Items ordered by falling lengths, cut so that only a single item may exceed `tokens`."""
    at = 0
    while at < len(order):
        rows = list(order[at : at + max(1, tokens // lengths[order[at]])])
        at += len(rows)
        yield rows
