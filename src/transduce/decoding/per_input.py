"""Errors and cancellation of single inputs among the many of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from transduce.decoding.backend import Cancelled
from transduce.decoding.options import DecodingOptions
from transduce.errors import CancelledError, TransduceError

OwnOptions = DecodingOptions | TransduceError
"""Options of one input, or the error in the given ones."""


class Cancellation:
    """Inputs of a call cancelled during decoding, each for good."""

    def __init__(self, hook: Cancelled | None, first: int = 0) -> None:
        """first: index for the hook of the first of the inputs that are decoded together."""
        self._hook = hook
        self._first = first
        self._cancelled: set[int] = set()

    def __call__(self, owner: int) -> bool:
        """True if an input has been cancelled."""
        if self._hook is None:
            return False
        if owner not in self._cancelled and self._hook(self._first + owner):
            self._cancelled.add(owner)
        return owner in self._cancelled

    def error(self, owner: int) -> CancelledError | None:
        """The answer to an input that was found cancelled; None for others."""
        return CancelledError("cancelled before completion") if owner in self._cancelled else None

    def in_search(self, owners: Sequence[Iterable[int]]) -> Cancelled | None:
        """Hook of a search in which piece i is decoded for all inputs of owners[i]."""
        if self._hook is None:
            return None
        return lambda i: all(map(self, owners[i]))


def checked(
    options: Sequence[OwnOptions], check: Callable[[DecodingOptions], object]
) -> list[OwnOptions]:
    """The options of each input, or the error that a check of them raises; equal ones once."""
    results: dict[DecodingOptions, OwnOptions] = {}
    for choice in options:
        if isinstance(choice, DecodingOptions) and choice not in results:
            try:
                check(choice)
                results[choice] = choice
            except TransduceError as error:
                results[choice] = error
    return [
        results[choice] if isinstance(choice, DecodingOptions) else choice for choice in options
    ]
