"""Waiting for another process."""

import time
from collections.abc import Callable

PATIENCE = 240.0
"""Seconds, for the slowest machine."""


def wait_for(condition: Callable[[], object], said: Callable[[], str] = str) -> None:
    """Wait until the condition holds; on timeout, fail with the output `said`."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited too long: {said()}"
        time.sleep(0.02)
