"""Tables of interactions of users with items, and the history of each user."""

from __future__ import annotations

import datetime
import hashlib
import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from transduce.config import section
from transduce.data.delimited import csv_cells
from transduce.data.lines import read_lines
from transduce.data.pairs import FilePath
from transduce.data.tables import no_column
from transduce.errors import DataError, SettingError

Ints = NDArray[np.int64]


@section
class InteractionsConfig:
    """A table with one interaction a row, its columns in the first line, plain or compressed."""

    kind: Literal["csv", "tsv"] = "csv"
    """Whether commas or tabs separate columns; fields may be quoted as CSV files have it."""
    path: FilePath
    """The file."""
    user: str = "user"
    """Column of who it was; any text."""
    item: str = "item"
    """Column of what it was; any text without spaces."""
    time: str = "time"
    """Column of when it was, a number or an ISO 8601 date.  What has the same time is put in an
    order that is arbitrary but always alike.  Without such a column the order is the file's:
    set it to "" then."""
    rating: str | None = None
    """Column of a rating, for `min_rating`."""
    min_rating: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Interactions with a lower rating are left out."""

    def __post_init__(self) -> None:
        if self.min_rating is not None and self.rating is None:
            raise SettingError("min_rating needs the name of a column, rating")


class Histories(NamedTuple):
    """What each user took, oldest first.

    users:    their names.
    items:    names of all items.
    sequence: (k,) numbers of items, user by user.
    offsets:  (n + 1,) the history of user i is sequence[offsets[i]] to sequence[offsets[i + 1]].
    """

    users: tuple[str, ...]
    items: tuple[str, ...]
    sequence: Ints
    offsets: Ints

    def __len__(self) -> int:
        return len(self.users)

    def of(self, user: int) -> list[str]:
        """Names of the items of a user, by number."""
        numbers = self.sequence[self.offsets[user] : self.offsets[user + 1]]
        return [self.items[number] for number in numbers.tolist()]


def read_histories(config: InteractionsConfig, root: Path, min_interactions: int = 1) -> Histories:
    """The histories that a section names, of users with at least so many interactions.

    root: the directory that relative paths start from.  Memory holds 24 bytes an interaction, and
    every name once.  Raises DataError for what cannot be read, or when no user is left.
    """
    path = root / config.path
    users: dict[str, int] = {}
    items: dict[str, int] = {}
    who, what, when, ties = array("i"), array("i"), array("d"), array("Q")
    for user, item, time in _interactions(config, path):
        who.append(users.setdefault(user, len(users)))
        what.append(items.setdefault(item, len(items)))
        when.append(time)
        ties.append(_chance(user, item) if config.time else len(ties))
    user_of, item_of = np.array(who, np.int64), np.array(what, np.int64)
    counts = np.bincount(user_of, minlength=len(users))
    enough = counts >= min_interactions
    if not enough.any():
        raise DataError(
            f"{path}: none of {len(users)} users has {min_interactions} interactions or more; "
            "lower data.min_interactions"
        )
    order = np.lexsort((np.array(ties, np.uint64), np.array(when), user_of))
    order = order[enough[user_of[order]]]
    names = [name for name, kept in zip(users, enough.tolist(), strict=True) if kept]
    offsets = np.concatenate([[0], counts[enough].cumsum()])
    return Histories(tuple(names), tuple(items), item_of[order], offsets)


def _interactions(config: InteractionsConfig, path: Path) -> Iterator[tuple[str, str, float]]:
    """User, item and time of every row that counts."""
    asked = [config.user, config.item, config.time or config.user, config.rating or config.user]
    for place, (user, item, time, rating) in _rows(path, config.kind, asked):
        if len(item.split()) != 1:
            reason = f"{item!r} has a space in it" if item.strip() else "is empty"
            raise DataError(
                f"{place}: {config.item!r} {reason}; items are told apart by spaces in a history, "
                "so name a column of identifiers"
            )
        if config.min_rating is not None:
            value = _number(rating)
            if value is None:
                raise DataError(f"{place}: {config.rating!r} is not a number but {rating[:40]!r}")
            if value < config.min_rating:
                continue
        moment = _moment(time) if config.time else 0.0
        if moment is None:
            raise DataError(
                f"{place}: {config.time!r} is neither a number nor a date such as "
                f"2024-05-31T12:00:00, but {time[:40]!r}"
            )
        yield user, item.strip(), moment


def _rows(path: Path, kind: str, columns: list[str]) -> Iterator[tuple[str, list[str]]]:
    """These columns of every row that is not blank, with its place."""
    delimiter = "\t" if kind == "tsv" else ","
    rows = (row for row in csv_cells(read_lines(path), str(path), delimiter) if row[1])
    _, names = next(rows, (1, []))
    for column in columns:
        if column not in names:
            raise DataError(no_column(f"{path}: line 1", column, names))
    indices = [names.index(column) for column in columns]
    for number, row in rows:
        yield f"{path}: line {number}", [row[i] for i in indices]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _moment(text: str) -> float | None:
    """Seconds of a date, taken as UTC unless it says otherwise; a number is what it is."""
    value = _number(text)
    if value is not None:
        return value
    try:
        date = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=datetime.UTC)).timestamp()


def _chance(user: str, item: str) -> int:
    """A number that depends on nothing but these names.

    Files are often sorted by item where times are equal; an order kept from there would tell a
    model what comes next.
    """
    names = f"{user}\t{item}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(names, digest_size=8).digest(), "big")


class HeldOutItem(NamedTuple):
    """One item of one user, and what came before it."""

    history: list[str]
    item: str


def leave_one_out(histories: Histories, split: Literal["valid", "test"]) -> Iterator[HeldOutItem]:
    """The last item of each user as the test, the one before it for validation.

    Every user has three items or more: what is before those two is the training part.  The test
    item's history holds the validation item.
    """
    back = 1 if split == "test" else 2
    for user in range(len(histories)):
        items = histories.of(user)
        yield HeldOutItem(items[:-back], items[-back])


def training_parts(histories: Histories) -> Iterator[list[str]]:
    """What is left of each user's history without the items for validation and test."""
    return (histories.of(user)[:-2] for user in range(len(histories)))
