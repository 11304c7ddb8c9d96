"""Waiting for another process."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 240.0
"""Seconds, for the slowest machine."""


def wait_for(condition: Callable[[], T], said: Callable[[], str] = str) -> T:
    """Wait for a value that is true, and return it; on timeout, fail with the output `said`."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, f"waited too long: {said()}"
        time.sleep(0.02)
    return value
