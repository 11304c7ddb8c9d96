"""Errors that a user can cause: the tree of `TransduceError`.

    TransduceError            base: one clear line that names the place and the remedy
    ├── SettingError          a recipe, `--set` or an option has an invalid value
    ├── DataError             an input file or data set is invalid or unreadable
    │   └── InputError        one of several inputs is invalid; the others can still be processed
    ├── RunError              a run directory is missing, damaged, or of another kind
    ├── CancelledError        decoding of a text was cancelled by the caller
    └── TrainingError         training cannot continue (a loss that is not finite, ...)
        └── MemoryLimitError  ... for lack of memory: on another machine it might

The command line prints the message of a `TransduceError` as a line and exits with its
`exit_code`.  Any other escaping exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import gzip
import threading
import zlib
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class TransduceError(Exception):
    """Base of all errors caused by the user; the message is one line."""

    exit_code = 1


class SettingError(TransduceError):
    """An invalid setting or option; names the setting, and the nearest valid name."""

    exit_code = 2


class DataError(TransduceError):
    """An invalid or unreadable input; names file, line and remedy."""


class InputError(DataError):
    """One of several inputs is invalid or unreadable.

    number: its index, from 0, among all inputs.  reason: the error without the place.
    """

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"input {number + 1}: {reason}")
        self.number = number
        self.reason = reason


class RunError(TransduceError):
    """A run directory that is missing, damaged, or of another kind."""


class UnknownTextError(DataError):
    """A text has words, none of which a model has tokens for."""


class CancelledError(TransduceError):
    """Decoding of a text was cancelled by the caller."""


class TrainingError(TransduceError):
    """Training cannot continue; the message names kept checkpoints and settings to change."""


class MemoryLimitError(TrainingError):
    """Training cannot continue with the available memory."""


def needs_extra(who: str, extra: str) -> str:
    """Message for a missing optional dependency.

    Its command installs from a clone, or without PyTorch from the wheel of transduce-runtime; never
    by name from the package index, where the name may belong to someone else.
    """
    where, what = "in a clone of transduce", "."
    if find_spec("torch") is None:
        where, what = "from its wheel", "transduce_runtime-….whl"
    return (
        f"{who} needs the extra {extra!r}; {where}: pip install '{what}[{extra}]' (docs/install.md)"
    )


def extra_module(module: str, who: str, extra: str, kind: type[TransduceError] = DataError) -> Any:
    """A module of an optional dependency.  Raises an error that names the extra without it.

    who: needs the module, for the message.  kind: class of the error.
    """
    try:
        return import_module(module)
    except (ImportError, OSError):  # OSError: a wheel without its shared library
        raise kind(needs_extra(who, extra)) from None


@contextmanager
def reading(name: object) -> Iterator[None]:
    """Convert errors of a file or its compression to a DataError that begins with its name."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{name} is a directory; name a file in it") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{name} is a damaged gzip file ({error}); download it again") from None
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror or error}") from None


@contextmanager
def writing(name: object, kind: type[TransduceError] = DataError) -> Iterator[None]:
    """Convert errors of a file system, but for a closed pipe, to an error with a name."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise kind(f"{name} cannot be written: {error.strerror or error}") from None


@contextmanager
def naming(name: object, kind: type[TransduceError] = DataError) -> Iterator[None]:
    """Put a name before the message of an error of the user, which becomes one of a kind."""
    try:
        yield
    except CancelledError:
        raise
    except TransduceError as error:
        raise kind(f"{name}: {error}") from None


JOINERS = "\u200c\u200d"
"""They join letters of Persian and of Indic scripts, and emoji, or keep them apart."""


def printable(text: str) -> str:
    """One line that is safe on a terminal, for any content of files and settings."""
    return "".join(c if c.isprintable() or c in JOINERS else ascii(c)[1:-1] for c in text)


def printable_name(name: str) -> str:
    """A name for use in lines, such as a label: each run of white space becomes one space."""
    return printable(" ".join(name.split()))


def first_line(error: BaseException) -> str:
    """Error message of another library as one line; its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


NEEDS_TORCH = "needs PyTorch, which is not installed; install transduce, not transduce-runtime"
"""End of a message in an installation without PyTorch."""


def lacks_torch(error: ImportError) -> bool:
    """True if a module cannot be imported for lack of PyTorch."""
    return (error.name or "").partition(".")[0] == "torch"


def lacks_evaluation(error: ImportError) -> bool:
    """True if a module cannot be imported without the extra `evaluate` of transduce-runtime."""
    return (error.name or "").partition(".")[0] in ("numpy", "sacrebleu", "sacremoses")


class TorchNeededError(Exception):
    """PyTorch is to be loaded in another thread first."""


TORCH_LATER: set[int | None] = set()
"""Threads, by their identifiers, that do not wait for PyTorch: `needing_torch` raises a
TorchNeededError in them."""


@contextmanager
def needing_torch(what: str) -> Iterator[None]:
    """Convert the ImportError of an installation without PyTorch to a SettingError."""
    if threading.get_ident() in TORCH_LATER:
        raise TorchNeededError
    try:
        yield
    except ImportError as error:
        if not lacks_torch(error):
            raise
        raise SettingError(f"{what} {NEEDS_TORCH}") from None


OUT_OF_MEMORY = (
    "out of memory; lower training.batch_tokens, decoding.batch_tokens or --beam-size, or use a "
    "smaller model"
)


def is_out_of_memory(error: BaseException) -> bool:
    """True for PyTorch's out-of-memory errors: a class of its own on GPUs, a RuntimeError on
    CPUs."""
    is_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return is_memory or "can't allocate memory" in str(error)
