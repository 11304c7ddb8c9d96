"""Forward old names of modules and classes to the new ones, with a DeprecationWarning."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def forwarded(
    module: str, new_module: str, names: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Make the `__getattr__` of a module.

    names: old -> new names in `new_module`; by default every public name unchanged.
    """

    def get(name: str) -> Any:
        new = (name if not name.startswith("_") else None) if names is None else names.get(name)
        if new is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(new_module), new)
        warnings.warn(
            f"{module}.{name} is now {new_module}.{new}", DeprecationWarning, stacklevel=2
        )
        return value

    return get
