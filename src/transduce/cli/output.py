"""Results: to stdout as they come, or to a file that is complete or absent."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from transduce.data.formats import packed
from transduce.errors import DataError, SettingError

STDOUT = "-"


class Output:
    """Writes lines as UTF-8, whatever the locale."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def write(self, lines: Iterable[str]) -> None:
        """Write lines and let the reader have them at once.

        Raises DataError when there is no room, BrokenPipeError when nobody reads.
        """
        self.write_text("".join(f"{line}\n" for line in lines))

    def write_text(self, text: str) -> None:
        """Write text as it is, raising what `write` raises."""
        data = text.encode("utf-8", "surrogateescape")
        with _said_plainly(self._name):
            self._file.write(data)
            self._file.flush()


@contextmanager
def open_output(path: str = STDOUT) -> Iterator[Output]:
    """Stdout, or a file: written aside and renamed when the context ends without an error.

    What is named `.gz`, `.bz2` or `.xz` is compressed.
    Raises DataError when the file cannot be written.
    """
    if path == STDOUT:
        if sys.stdout is None:
            raise DataError("stdout is closed; there is nowhere to write to")
        yield Output(sys.stdout.buffer, "stdout")
        return
    named = Path(path)
    if named.exists() and not named.is_file():  # /dev/null, /dev/stdout, a named pipe
        with _said_plainly(path), named.open("wb") as file:
            yield Output(file, path)
        return
    final = named.resolve()  # through a link to what it names, which the rename replaces
    aside = final.with_name(f"{final.name}.{os.getpid()}.part")
    with _said_plainly(path):
        file = aside.open("wb")
    try:
        with contextlib.closing(file):
            inner = packed(file, path)
            try:
                yield Output(inner, path)
            finally:
                with _said_plainly(path):
                    inner.close()
        with _said_plainly(path):
            if final.exists():
                shutil.copymode(final, aside)
            aside.replace(final)
    finally:
        aside.unlink(missing_ok=True)


def check_not_read(output: str | None, *inputs: str | Path | None) -> None:
    """Raises SettingError where the output is a file that is read from, which it would replace."""
    if output is None or not Path(output).is_file():
        return
    for given in inputs:
        if given is not None and Path(given).is_file() and Path(output).samefile(given):
            raise SettingError(f"--output {output} is read from; give another file")


def print_lines(*lines: str) -> None:
    """Write lines to stdout."""
    with open_output() as output:
        output.write(lines)


@contextmanager
def _said_plainly(name: str) -> Iterator[None]:
    """Turn what the system says about writing into one line."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise DataError(f"{name} cannot be written: {error.strerror or error}") from None
