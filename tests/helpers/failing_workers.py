"""Services that cannot be made, for workers in processes of their own."""

import os
import signal
from typing import NoReturn


def killed(*_: object) -> NoReturn:
    """As for lack of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def without_disk(*_: object) -> NoReturn:
    """An error of the operating system."""
    raise OSError(28, "No space left on device", "shared")


def defective(*_: object) -> NoReturn:
    """A fault of the code."""
    raise ZeroDivisionError
