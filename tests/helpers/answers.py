"""Answers of models, compared."""

from typing import Any

import pytest


def close(found: Any, expected: Any) -> bool:
    """Equal, except for rounding in another processor's order of summation."""
    if isinstance(expected, dict):
        return all(close(found[name], value) for name, value in expected.items())
    if isinstance(expected, list):
        pairs = zip(found, expected, strict=True)
        return all(close(one, other) for one, other in pairs)
    if isinstance(expected, float):
        return bool(found == pytest.approx(expected, abs=1e-4))
    return bool(found == expected)


def choices(found: Any) -> Any:
    """An answer without its numbers: texts, labels, and the order of candidates."""
    if isinstance(found, dict):
        return {name: choices(value) for name, value in found.items()}
    if isinstance(found, list):
        return [choices(value) for value in found]
    return None if isinstance(found, float) else found
