"""Messages of the command line beside its results: plain lines on stderr."""

from __future__ import annotations

import contextlib
import logging
import sys

from transduce.errors import printable


def print_error(message: str) -> None:
    """Say in one line on stderr why the command ends."""
    _say(f"transduce: {printable(' '.join(message.split()))}")


def log_to_stderr() -> None:
    """Show what the package logs, from INFO up, as plain lines on stderr."""
    logger = logging.getLogger("transduce")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers = [_PlainLines()]


class _PlainLines(logging.Handler):
    """Writes to what `sys.stderr` is at that moment, since a progress bar stands in for it."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        lines = record.getMessage().split("\n")
        _say(prefix + "\n".join(map(printable, lines)))


def _say(line: str) -> None:
    if sys.stderr is None:  # closed by the caller
        return
    with contextlib.suppress(OSError):  # nobody listens: no reason to stop working
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
