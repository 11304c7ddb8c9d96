"""Messages of the command line beside its results: plain lines on stderr."""

import contextlib
import logging
import sys

from transduce.errors import printable


def print_error(message: str) -> None:
    """Print an error as one line on stderr."""
    write_stderr(f"transduce: {printable(' '.join(message.split()))}\n")


def log_to_stderr() -> None:
    """Log messages of the package, from INFO up, as plain lines on stderr."""
    logger = logging.getLogger("transduce")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.handlers = [_PlainLines()]


class _PlainLines(logging.Handler):
    """Handler that looks up `sys.stderr` for each record, as progress bars replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        lines = record.getMessage().split("\n")
        write_stderr(prefix + "\n".join(map(printable, lines)) + "\n")


def write_stderr(text: str) -> None:
    """Write text to stderr, if that is open."""
    if sys.stderr is None:  # closed by the caller
        return
    with contextlib.suppress(OSError):  # stderr closed: no reason to stop
        sys.stderr.write(text)
        sys.stderr.flush()
