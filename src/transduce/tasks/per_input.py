"""Errors and cancellation of single inputs among the many of one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from transduce.decoding.options import DecodingOptions
from transduce.errors import CancelledError, TransduceError
from transduce.tasks.prediction import Prediction

Cancelled = Callable[[int], bool]
"""Called between steps with the place of an input in its call: is it cancelled?"""
OwnOptions = DecodingOptions | TransduceError
"""Options of one input, or the error in the given ones."""


@runtime_checkable
class Attempting(Protocol):
    """Predictor with options for each input, and cancellation."""

    def attempt(
        self,
        inputs: Sequence[str],
        options: Sequence[OwnOptions],
        first: int,
        cancelled: Cancelled | None,
        /,
    ) -> Sequence[Prediction | TransduceError]:
        """The answer to each input, or its error, in order."""


class Cancellation:
    """Inputs of one call cancelled during decoding.

    Each stays cancelled once its search has been cut, regardless of later results of the hook.
    """

    def __init__(self, hook: Cancelled | None) -> None:
        self._hook = hook
        self._places: set[int] = set()

    def __call__(self, place: int) -> bool:
        """True if an input has been cancelled."""
        if self._hook is not None and place not in self._places and self._hook(place):
            self._places.add(place)
        return place in self._places

    def error(self, place: int) -> CancelledError | None:
        """The answer to an input that was found cancelled; None for others."""
        return CancelledError("cancelled before completion") if place in self._places else None

    def in_search(self, places: Sequence[Sequence[int]]) -> Callable[[int], bool] | None:
        """Hook of a search in which sentence i is decoded for all inputs of places[i]."""
        if self._hook is None:
            return None
        return lambda sentence: all(map(self, places[sentence]))

    def of_part(self, places: Sequence[int]) -> Cancelled | None:
        """The hook for some of the inputs, called with their place among these."""
        return self.in_search([[place] for place in places])


NEVER = Cancellation(None)


def of_each(
    options: DecodingOptions | Sequence[OwnOptions] | None, default: DecodingOptions, count: int
) -> Sequence[OwnOptions]:
    """Options of each of `count` inputs: shared, or from a sequence."""
    options = options or default
    return [options] * count if isinstance(options, DecodingOptions) else options


def checked(
    options: Sequence[OwnOptions], check: Callable[[DecodingOptions], object]
) -> list[OwnOptions]:
    """The options of each input, or the error that a check of them raises; equal ones once."""
    known: dict[DecodingOptions, OwnOptions] = {}
    found: list[OwnOptions] = []
    for own in options:
        if isinstance(own, DecodingOptions) and own not in known:
            try:
                check(own)
                known[own] = own
            except TransduceError as error:
                known[own] = error
        found.append(known[own] if isinstance(own, DecodingOptions) else own)
    return found


def named(error: TransduceError, name: str) -> TransduceError:
    """The error of one input, to be raised for all of its call."""
    return type(error)(f"{name}: {error}")
