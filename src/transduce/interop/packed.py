"""Files of models that came compressed, as Mozilla ships them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from transduce.data.text_files import PACKINGS, Packing, unpacked_chunks
from transduce.errors import DataError, reading
from transduce.support.zipped import MOST_BYTES

FILES = (".bin", ".spm", ".npz", ".yml", ".yaml", ".json")
"""Suffixes of files of models that are unpacked, before those of `PACKINGS`."""


def packed_files(directory: Path) -> Mapping[Path, Packing]:
    """Compressed files of a model in a directory, without those that are there unpacked."""
    packings = {packing.suffix: packing for packing in PACKINGS}
    return {
        file: packings[file.suffix]
        for file in (sorted(directory.iterdir()) if directory.is_dir() else ())
        if file.suffix in packings and Path(file.stem).suffix in FILES
        if not file.with_suffix("").exists()
    }


@contextmanager
def plain_files(directory: Path) -> Iterator[Path]:
    """The directory, or one of its name where its compressed files are unpacked.

    Raises DataError for a damaged file and more than MOST_BYTES, SettingError without the library
    of its compression.
    """
    packed = packed_files(directory)
    if not packed:
        yield directory
        return
    with tempfile.TemporaryDirectory() as temporary:
        plain = Path(temporary) / directory.absolute().name
        plain.mkdir()
        for file in (*directory.iterdir(), *directory.absolute().parent.glob("registry.json")):
            if file.is_file() and file not in packed:
                (plain / file.name).symlink_to(file.absolute())
        left = MOST_BYTES
        for file, packing in packed.items():
            left -= _unpack(file, packing, plain / file.stem, left)
        yield plain


def _unpack(file: Path, packing: Packing, to: Path, most: int) -> int:
    """Unpack a file of at most that many bytes; returns their number."""
    with reading(file), file.open("rb") as content, to.open("wb") as written:
        for chunk in unpacked_chunks(packing, content, str(file)):
            if written.tell() + len(chunk) > most:
                raise DataError(f"{file} unpacks to more than {MOST_BYTES >> 30} GiB")
            written.write(chunk)
        return written.tell()
