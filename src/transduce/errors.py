"""Errors that a user can cause: the tree of `TransduceError`.

    TransduceError            base: one clear line that names the place and the remedy
    ├── SettingError          a recipe, `--set` or an option says something that cannot be
    ├── DataError             an input file or data set is not what it should be
    │   └── InputError        one input of many: says which, so that others can be answered
    ├── RunError              a run directory is missing, damaged, or of another kind
    ├── CancelledError        decoding of a text ended because its caller asked for that
    └── TrainingError         training cannot go on (a loss that is not finite, ...)
        └── MemoryLimitError  ... for want of memory: on another machine it might

The command line prints the message of a `TransduceError` as one line and exits with its
`exit_code`.  Everything else that escapes is a bug of ours and keeps its traceback.
"""

from __future__ import annotations

import gzip
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class TransduceError(Exception):
    """Base of all errors that answer a user's mistake; the message is one line."""

    exit_code = 1


class SettingError(TransduceError):
    """A setting or option that cannot be: names the setting, and the nearest right one."""

    exit_code = 2


class DataError(TransduceError):
    """An input that cannot be read as what it should be: names file, line and remedy."""


class InputError(DataError):
    """One of several inputs cannot be read as what it should be.

    number: which one, from 0, of all that are asked about.  reason: what is wrong with it.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"input {number + 1}: {reason}")
        self.number = number
        self.reason = reason


class RunError(TransduceError):
    """A run directory that is missing, damaged, or of another kind."""


class CancelledError(TransduceError):
    """Decoding of a text ended early because its caller cancelled it."""


class TrainingError(TransduceError):
    """Training cannot go on; says what was kept and what to change."""


class MemoryLimitError(TrainingError):
    """Training cannot go on in the memory that there is."""


def needs_extra(who: str, extra: str) -> str:
    """The message where an optional dependency is not installed.

    It gives no command for the package index: who bears our name there is not for a message to
    vouch for.
    """
    return f"{who} needs the extra {extra!r}; install transduce with it, as its README shows"


@contextmanager
def reading(place: object) -> Iterator[None]:
    """What goes wrong with the file or its compression, as a DataError that names the place."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{place}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{place} is a directory; name a file in it") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{place} is not a whole gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{place} cannot be read: {error.strerror or error}") from None


JOINERS = "\u200c\u200d"
"""They join letters of Persian and of Indic scripts, and emoji, or keep them apart."""


def printable(text: str) -> str:
    """One line that does nothing to a terminal, whatever stood in a file or in settings."""
    return "".join(c if c.isprintable() or c in JOINERS else ascii(c)[1:-1] for c in text)


def printable_name(name: str) -> str:
    """A name that stands in lines, such as a label: each run of white space is one space."""
    return printable(" ".join(name.split()))


def first_line(error: BaseException) -> str:
    """What an error of another library says, in one line; its kind where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


OUT_OF_MEMORY = (
    "out of memory; lower training.batch_tokens, decoding.batch_tokens or --beam-size, or take a "
    "smaller model"
)


def is_out_of_memory(error: BaseException) -> bool:
    """PyTorch says it with a class of its own on GPUs and with a plain RuntimeError on CPUs."""
    said = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return said or "can't allocate memory" in str(error)
