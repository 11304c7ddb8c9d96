"""Remedy for empty splits that are set aside from the training data."""

from __future__ import annotations

from collections.abc import Iterable

from transduce.tasks.recipe import Split
from transduce.tasks.sections import SplitsConfig
from transduce.tasks.splits import own_section, place_of

LARGEST_HOLD_OUT = 0.25
"""Share of the training data that any task can set aside for each split."""


def remedy_for_nothing_held_out(config: SplitsConfig, split: Split, keys: Iterable[str]) -> str:
    """Remedy to end a message with, where `hold_out` leaves a split empty; else nothing.

    keys: of the items to train on, as `read_split` has them.  Larger shares cannot help where the
    first key to be set aside is also the last.
    """
    if split == "train" or own_section(config, split) is not None:
        return ""
    places = {place_of(key) for key in keys}
    first, last = min(places, default=1.0), max(places, default=0.0)
    parts = 1 if config.test is not None else 2
    if first < LARGEST_HOLD_OUT and last > parts * first:
        return "; raise data.hold_out, or set data.valid"
    return f"; set data.valid, since {len(places)} distinct examples are too few to hold some out"
