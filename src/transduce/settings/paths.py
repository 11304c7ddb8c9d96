"""Paths in settings, in which `~` and `$VARIABLE` are replaced once, and how deep settings go."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\}|\$)")
MAX_LEVELS = 50
"""Sections and lists of settings within each other."""


class LiteralText(str):
    """Text of a parsed recipe or of a run, taken as it is: `~` and `$` stand for themselves."""


def check_levels(settings: Mapping[str, Any]) -> None:
    """Raise RecursionError for settings nested more deeply than any section is."""
    level: list[Any] = [settings]
    for _ in range(MAX_LEVELS):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, Mapping) else outer)
            if isinstance(inner, Mapping | list)
        ]
        if not level:
            return
    raise RecursionError


def literal(settings: Any) -> Any:
    """Settings with every text marked as `LiteralText`."""
    if isinstance(settings, Mapping):
        return {key: literal(value) for key, value in settings.items()}
    if isinstance(settings, list):
        return [literal(value) for value in settings]
    return LiteralText(settings) if isinstance(settings, str) else settings


def expanded_path(path: Any) -> Any:
    """A path with `~` and `$VARIABLE` replaced unless it is literal; `$$` is the sign itself.

    For a field of a section, whose type refuses other values.  A relative path stays relative.
    Raises ValueError for a variable that is not set, and for a name that no recipe can hold.
    """
    if not isinstance(path, str | Path):
        return path
    if isinstance(path, LiteralText):
        return str(_storable(path))

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is not None and name not in os.environ:
            raise ValueError(
                f"the environment variable {name} is not set; export it, or write $$ for a $"
            )
        return "$" if name is None else os.environ[name]

    text = _storable(str(path))
    user = text.partition("/")[0] if text.startswith("~") else ""
    home = os.path.expanduser(user)  # noqa: PTH111
    if home == user:  # no such user
        home = user = ""
    return _storable(home + _VARIABLE.sub(value, text.removeprefix(user)))


def absolute_path(path: Any) -> Any:
    """An expanded path made absolute, so that a recipe works from any directory."""
    expanded = expanded_path(path)
    return _storable(str(Path(expanded).resolve())) if isinstance(expanded, str) else expanded


def _storable(path: str) -> str:
    """The path itself.  Raises ValueError for a path that a recipe, as TOML, cannot hold."""
    if "\0" in path:
        raise ValueError("a file name cannot contain the character NUL")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{path!r} is not UTF-8, which recipes need; rename it") from None
    return path
