"""Tables that parts of installed packages join."""

from __future__ import annotations

import functools
from collections import UserDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from transduce.errors import TransduceError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


V = TypeVar("V")


class OpenTable(UserDict[str, V]):
    """A table of parts by name, and of those that installed packages have as entry points.

    Entry points of `group`, such as `transduce.tasks`, are read once a name is not in the table; a
    dot before the names of the table is none of theirs.  Raises TransduceError, with the package,
    for one that cannot be imported.
    """

    def __init__(self, group: str, rows: Mapping[str, V]) -> None:
        super().__init__(rows)
        self.group = group

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in self._points

    def __missing__(self, name: str) -> V:
        point = self._points[name]
        try:
            part: V = point.load()
        except (ImportError, AttributeError) as error:
            package = "" if point.dist is None else f" of the package {point.dist.name}"
            raise TransduceError(f"{self.group}{package} cannot be imported: {error}") from error
        self.data[name] = part
        return part

    @functools.cached_property
    def _points(self) -> dict[str, EntryPoint]:
        """Entry points by the name of their part."""
        from importlib.metadata import entry_points

        dot = "." if any(name.startswith(".") for name in self.data) else ""
        return {dot + point.name: point for point in entry_points(group=self.group)}
