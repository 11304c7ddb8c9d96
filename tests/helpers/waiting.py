"""Waiting for what another process does."""

import time
from collections.abc import Callable

PATIENCE = 240.0
"""Seconds, for the slowest machine."""


def wait_for(condition: Callable[[], object], said: Callable[[], str] = str) -> None:
    """Until the condition holds; fails with what has been `said` where it never does."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited too long: {said()}"
        time.sleep(0.02)
