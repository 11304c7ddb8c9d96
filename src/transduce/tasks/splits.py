"""Splits of a recipe's data: named there, or held out from the training data by a hash."""

from __future__ import annotations

import hashlib
import heapq
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from transduce.data.sources import fingerprint
from transduce.errors import DataError, SettingError
from transduce.tasks.recipe import Split
from transduce.tasks.sections import SplitsConfig, TrainingData

T = TypeVar("T")

PLACE_VERSION = 3
"""Incremented when places change (see `read_split`), to invalidate encoded data."""
LARGEST_HOLD_OUT = 0.25
"""Share of the training data that any task can set aside for each split."""


def check_trainable(config: TrainingData) -> None:
    """Raises SettingError for a recipe without training data."""
    if config.train is None:
        raise SettingError("data.train is missing; set it to the training files")


def check_own_data(config: TrainingData, split: Split) -> None:
    """Raises SettingError or DataError if there is no data to take a split from."""
    if split == "train":
        check_trainable(config)
    elif config.train is None:
        raise DataError("the run has no data (it may be imported); give --source and --reference")


def has_split(config: SplitsConfig, split: Split) -> bool:
    """Return True if there are items for this split."""
    return split != "test" or config.test is not None or config.valid is None


def read_split(
    config: SplitsConfig,
    split: Split,
    read: Callable[[Any, Path], Iterator[T]],
    key: Callable[[T], str],
) -> Iterator[T]:
    """Stream the items of a split.  Raises DataError for unreadable data.

    read: reads the items of a section, given the root.  key: text of an item whose hash assigns it
    to a split, if splits are held out from the training data: items of equal keys are in the
    same split, in any order of the file.
    """
    source = source_of(config, split)
    for item in read(source.section, Path(config.root)):
        if source.is_whole or source.holds(place_of(key(item))):
            yield item


class SplitSource(NamedTuple):
    """Section with the items of a split, and the bounds of their hashes."""

    section: Any
    low: float = 0.0
    high: float = 1.0

    @property
    def is_whole(self) -> bool:
        """True if all items belong to the split."""
        return (self.low, self.high) == (0.0, 1.0)

    def holds(self, hashes: Any) -> Any:
        """True for a hash, or an array of them, of items of the split."""
        return (self.low <= hashes) & (hashes < self.high)


def source_of(config: SplitsConfig, split: Split, items: str = "data") -> SplitSource:
    """Section to read a split from.  Raises DataError if there is none.

    items: name of the data, for messages.
    """
    section = own_section(config, split)
    if section is not None:
        return SplitSource(section)
    if not has_split(config, split):
        raise DataError(
            f"the recipe has no test {items}; set data.test, or give --source and --reference"
        )
    check_own_data(config, split)
    return SplitSource(config.train, *bounds_of(config, split))


def bounds_of(config: SplitsConfig, split: Split) -> tuple[float, float]:
    """Bounds of the hash (see `place_of`) of the training data that belong to a split."""
    begin = 0.0
    parts: dict[str, tuple[float, float]] = {}
    for name in ("valid", "test"):
        if getattr(config, name) is None and has_split(config, name):
            parts[name] = (begin, begin := begin + config.hold_out)
    return parts.get(split, (begin, 1.0))


def own_section(config: SplitsConfig, split: Split) -> Any:
    """Section of a split; None for the training data, and for a split held out from it."""
    return {"train": None, "valid": config.valid, "test": config.test}[split]


def split_fingerprint(config: SplitsConfig, split: Split) -> str:
    """Fingerprint of the items of a split."""
    section = own_section(config, split)
    source = section if section is not None else config.train
    made = [PLACE_VERSION, split, config.hold_out, config.valid is None, config.test is None]
    return f"{fingerprint(source, Path(config.root))} {made}"


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


def place_of(text: str) -> float:
    """Hash of a text as a number in [0, 1), regardless of case.

    "Dog" and "dog" are in the same split: a lower-casing tokenizer would otherwise see the test.
    """
    plain = unicodedata.normalize("NFKC", text).casefold().strip()
    digest = hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def sampled(items: Iterable[T], count: int, text: Callable[[T], str]) -> list[T]:
    """A sample of `count` items, in their order.

    Selected by a hash of their texts, independent of their order: the first items of a file sorted
    by language, length or article would not be representative.
    """
    if not count:
        return []
    chosen = heapq.nsmallest(count, enumerate(items), key=lambda item: place_of(text(item[1])))
    return [item for _, item in sorted(chosen, key=lambda item: item[0])]
