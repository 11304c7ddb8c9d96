"""Tables of interactions of users with items, and the history of each user."""

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

from transduce.data.sources import FilePath
from transduce.data.tables import numbered_csv_rows
from transduce.errors import DataError, SettingError
from transduce.settings.sections import section

Ints = NDArray[np.int64]


@section
class InteractionsConfig:
    """A table with a header line and one interaction per row, plain or compressed."""

    kind: Literal["csv", "tsv"] = "csv"
    """Columns separated by commas (`csv`) or tabs (`tsv`); fields may be quoted as in CSV."""
    path: FilePath
    """The file."""
    user: str = "user"
    """Column of users; any text."""
    item: str = "item"
    """Column of items; any text without spaces."""
    time: str = "time"
    """Column of times, each a number or an ISO 8601 date.  Equal times are put in an arbitrary but
    fixed order.  If there is no time column, set it to "" to keep the order of the file."""
    rating: str | None = None
    """Column of ratings, for `min_rating`."""
    min_rating: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Leave out interactions with a lower rating."""

    def __post_init__(self) -> None:
        if self.min_rating is not None and self.rating is None:
            raise SettingError("min_rating needs a rating column; set `rating` to its name")


class Histories(NamedTuple):
    """Items of each user, oldest first.

    users:    names of the users.
    items:    names of all items.
    sequence: (k,) item indices, user by user.
    offsets:  (n + 1,) the history of user i is sequence[offsets[i]] to sequence[offsets[i + 1]].
    """

    users: tuple[str, ...]
    items: tuple[str, ...]
    sequence: Ints
    offsets: Ints

    def __len__(self) -> int:
        return len(self.users)

    def of(self, user: int) -> list[str]:
        """Item names of a user, by index."""
        numbers = self.sequence[self.offsets[user] : self.offsets[user + 1]]
        return [self.items[number] for number in numbers.tolist()]


def read_histories(config: InteractionsConfig, root: Path, min_interactions: int = 1) -> Histories:
    """Histories of a section, for users with at least this many interactions.

    Memory holds 24 bytes per interaction, and every name once.  Raises DataError for unreadable
    input, or if no user is left.

    config: the section of the recipe.  root: directory of its relative paths.  min_interactions: a
    user with fewer is left out.
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
            f"{path}: none of {len(users)} users has at least {min_interactions} interactions; "
            "lower data.min_interactions"
        )
    order = np.lexsort((np.array(ties, np.uint64), np.array(when), user_of))
    order = order[enough[user_of[order]]]
    names = [name for name, frequent in zip(users, enough.tolist(), strict=True) if frequent]
    offsets = np.concatenate([[0], counts[enough].cumsum()])
    return Histories(tuple(names), tuple(items), item_of[order], offsets)


def _interactions(config: InteractionsConfig, path: Path) -> Iterator[tuple[str, str, float]]:
    asked = [config.user, config.item, config.time or config.user, config.rating or config.user]
    rows = numbered_csv_rows(path, asked, "\t" if config.kind == "tsv" else ",")
    for number, (user, item, time, rating) in rows:
        location = f"{path}: line {number}"
        if len(item.split()) != 1:
            reason = f"{item!r} contains a space" if item.strip() else "is empty"
            raise DataError(
                f"{location}: {config.item!r} {reason}; histories separate items by spaces, so use "
                "a column of identifiers"
            )
        if config.min_rating is not None:
            value = _number(rating)
            if value is None:
                raise DataError(
                    f"{location}: {config.rating!r} must be a number, not {rating[:40]!r}"
                )
            if value < config.min_rating:
                continue
        moment = _moment(time) if config.time else 0.0
        if moment is None:
            raise DataError(
                f"{location}: {config.time!r} must be a number or a date such as "
                f"2024-05-31T12:00:00, not {time[:40]!r}"
            )
        yield user, item.strip(), moment


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _moment(text: str) -> float | None:
    """Seconds of a date, in UTC by default; numbers stay as they are."""
    value = _number(text)
    if value is not None:
        return value
    try:
        date = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=datetime.UTC)).timestamp()


def _chance(user: str, item: str) -> int:
    """A number that depends only on these names: files are often sorted by item at equal times, and
    keeping that order would leak the next item."""
    names = f"{user}\t{item}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(names, digest_size=8).digest(), "big")


class HeldOutItem(NamedTuple):
    """An item of a user, with the history before it."""

    history: list[str]
    item: str


def leave_one_out(histories: Histories, split: Literal["valid", "test"]) -> Iterator[HeldOutItem]:
    """Hold out the last item of each user, of three or more, for the test, the one before for
    validation."""
    back = 1 if split == "test" else 2
    for user in range(len(histories)):
        items = histories.of(user)
        yield HeldOutItem(items[:-back], items[-back])


def training_parts(histories: Histories) -> Iterator[list[str]]:
    """Each user's history without the validation and test items."""
    return (histories.of(user)[:-2] for user in range(len(histories)))
