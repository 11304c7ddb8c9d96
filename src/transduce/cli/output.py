"""Output of results: streamed to stdout, or to a file written atomically."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from transduce.data.text_files import packed
from transduce.errors import DataError, SettingError, writing

STDOUT = "-"


class Output:
    """Writer of UTF-8 lines, independent of the locale."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def write(self, lines: Iterable[str]) -> None:
        """Write lines and flush them.

        Raises DataError if writing fails, BrokenPipeError if the pipe is closed.
        """
        self.write_text("".join(f"{line}\n" for line in lines))

    def write_text(self, text: str) -> None:
        """Write text unchanged; raises the errors of `write`."""
        self.write_bytes(text.encode("utf-8", "surrogateescape"))

    def write_bytes(self, data: bytes) -> None:
        """Write bytes unchanged; raises the errors of `write`."""
        with writing(self._name):
            self._file.write(data)
            self._file.flush()


@contextmanager
def open_output(path: str = STDOUT) -> Iterator[Output]:
    """Open stdout, or a temporary file renamed when the context ends without an error.

    Compressed if named `.gz`, `.bz2` or `.xz`.  Raises DataError if the file cannot be written.
    """
    if path == STDOUT:
        if sys.stdout is None:
            raise DataError("stdout is closed; give --output FILE or connect stdout")
        yield Output(sys.stdout.buffer, "stdout")
        return
    named = Path(path)
    if named.exists() and not named.is_file():  # /dev/null, /dev/stdout, a named pipe
        with writing(path), named.open("wb") as file:
            yield Output(file, path)
        return
    final = named.resolve()  # the rename replaces the target of a link
    aside = final.with_name(f"{final.name}.{os.getpid()}.part")
    with writing(path):
        file = aside.open("wb")
    try:
        with contextlib.closing(file):
            inner = packed(file, path)
            try:
                yield Output(inner, path)
            finally:
                with writing(path):
                    inner.close()
        with writing(path):
            if final.exists():
                shutil.copymode(final, aside)
            aside.replace(final)
    finally:
        aside.unlink(missing_ok=True)


def make_directory(path: Path) -> None:
    """Make a directory for outputs, unless it is there.  Raises DataError if that fails."""
    with writing(str(path)):
        path.mkdir(parents=True, exist_ok=True)


def check_replaceable(path: Path, again: bool) -> None:
    """Raise DataError if a file exists that is not to be replaced."""
    if path.is_file() and not again:
        raise DataError(f"{path} exists; --again replaces it")


def check_page(path: str, again: bool) -> None:
    """Raise SettingError for a page whose name does not end in .html, and DataError if it exists
    and is not to be replaced; stdout and devices can be written."""
    named = Path(path)
    if path == STDOUT or (named.exists() and not (named.is_file() or named.is_dir())):
        return
    if named.is_dir():
        raise SettingError(f"{named} is a directory; give the page a name, such as page.html")
    if named.suffix != ".html":
        raise SettingError(f"{path} must end in .html; write {path}.html")
    check_replaceable(named, again)


def check_not_read(output: str | None, *inputs: str | Path | None) -> None:
    """Raise SettingError if the output file is an input file."""
    if output is None or not Path(output).is_file():
        return
    for path in inputs:
        if path is not None and Path(path).is_file() and Path(output).samefile(path):
            raise SettingError(f"--output {output} is also an input; give another file")


def print_lines(*lines: str) -> None:
    """Write lines to stdout."""
    with open_output() as output:
        output.write(lines)


def print_json(content: Any) -> None:
    """Write JSON in one line to stdout."""
    print_lines(json.dumps(content, ensure_ascii=False))
