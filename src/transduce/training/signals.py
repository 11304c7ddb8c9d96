"""Signals: an orderly end after the present step."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM)
AT_ONCE_SECONDS = 1.0
"""Delay before a second Ctrl-C counts: terminals and wrappers may both forward the first."""


class InterruptedTraining(Exception):  # noqa: N818  it is not an error
    """Training stopped by a signal; a checkpoint was written."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


class StoppedValidation(Exception):  # noqa: N818  it is not an error
    """Validation cut short by a signal."""


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let a function handle SIGINT and SIGTERM within the context."""
    try:
        before = {number: signal.signal(number, handler) for number in ENDING}
    except ValueError:  # not the main thread: signals are the caller's affair
        before = {}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class Signals:
    """Handler of SIGINT and SIGTERM, of which the last is `number`, to end with a checkpoint."""

    def __init__(self) -> None:
        self.number = 0
        self._came = 0.0
        self._may_raise = False

    def noted(self) -> AbstractContextManager[None]:
        """Record signals within the context instead of ending the process."""
        return handled_by(self._note)

    @contextlib.contextmanager
    def cutting_short(self) -> Iterator[None]:
        """Let a signal end the context with StoppedValidation, for work without side effects."""
        self._may_raise = True
        try:
            yield
        finally:
            self._may_raise = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.number:
            self.number, self._came = number, now
        # Only a person asks twice; `timeout` and some schedulers send SIGTERM twice at once.
        elif number == signal.SIGINT and now - self._came >= AT_ONCE_SECONDS:
            raise KeyboardInterrupt
        if self._may_raise:
            self._may_raise = False
            raise StoppedValidation
