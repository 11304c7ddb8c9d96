"""A run directory in a .zip, as a page of `transduce page` saves it."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transduce.errors import DataError

MOST_BYTES = 8 << 30
"""Bytes of all files of an archive, unpacked."""


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A directory with the files of an archive, or a path that is no archive as it is.

    Raises DataError for a damaged archive, for one without a recipe.toml at its top, and for more
    than MOST_BYTES.
    """
    if path.suffix.lower() != ".zip" or not path.is_file():
        yield path
        return
    with tempfile.TemporaryDirectory() as directory:
        try:
            with zipfile.ZipFile(path) as archive:
                _unpack(archive, path, Path(directory))
        except (
            zipfile.BadZipFile,
            zlib.error,
            EOFError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise DataError(f"{path} is damaged ({error}); save it again") from None
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
        yield Path(directory)


def _unpack(archive: zipfile.ZipFile, path: Path, directory: Path) -> None:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if "recipe.toml" not in (entry.filename for entry in entries):
        raise DataError(
            f"{path} holds no run (no recipe.toml at its top); save one with the page of "
            "`transduce page`"
        )
    if sum(entry.file_size for entry in entries) > MOST_BYTES:
        raise DataError(f"{path} unpacks to more than {MOST_BYTES >> 30} GiB")
    for entry in entries:
        if Path(entry.filename).name != entry.filename:  # of a folder, which a run does not need
            continue
        with archive.open(entry) as packed, (directory / entry.filename).open("wb") as file:
            shutil.copyfileobj(packed, file)
