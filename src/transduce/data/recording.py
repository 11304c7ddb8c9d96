"""One recording and its texts, not yet read: a file, a member of an archive, or bytes."""

from __future__ import annotations

import functools
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

from transduce.audio.read import Excerpt
from transduce.errors import DataError, reading
from transduce.support.limits import RECORDING_LIMIT

ZIP = ".zip:"


class ZipMember(NamedTuple):
    """A file in a zip archive."""

    archive: Path
    name: str

    def read(self) -> bytes:
        """Its bytes.  Raises DataError if they are missing, damaged or above the limit."""
        with reading(self.archive):
            status = self.archive.stat()
        try:
            archive = _archive(self.archive, status.st_size, status.st_mtime_ns)
            size = archive.getinfo(self.name).file_size
            if size > RECORDING_LIMIT.most() << 20:
                raise DataError(
                    f"{self} would unpack to {size >> 20} MiB; {RECORDING_LIMIT.remedy()}"
                )
            return archive.read(self.name)
        except KeyError:
            raise DataError(f"{self.archive} has no member {self.name!r}") from None
        except (zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise DataError(f"{self} is damaged ({error}); download the archive again") from None
        except (OSError, RuntimeError, NotImplementedError, UnicodeDecodeError) as error:
            raise DataError(f"{self} cannot be read: {error}; unpack the archive") from None

    def __str__(self) -> str:
        return f"{self.archive}:{self.name}"


class Recording(NamedTuple):
    """A recording, not yet read, and its texts.

    audio: path of a file, a member of an archive, or bytes.  text: the target, or blank.
    transcript: the spoken words where the text is their translation.  start, duration: see
    `Excerpt`.  name: its file as the data write it, or its key, with the start if it is a part.
    location: its name in messages.
    """

    audio: Path | ZipMember | bytes
    text: str
    name: str
    location: str
    transcript: str = ""
    speaker: str = ""
    start: float | None = None
    duration: float | None = None

    def file(self) -> Path | bytes:
        """The audio file, as `read_audio` takes it.  Raises DataError for a broken archive."""
        return self.audio.read() if isinstance(self.audio, ZipMember) else self.audio

    def excerpt(self, speed: float = 1.0) -> Excerpt:
        """Its part of the file, at another speed."""
        return Excerpt(self.start, self.duration, speed=speed)


def located(directory: Path, name: str) -> Path | ZipMember:
    """The file that data name: a path, or `archive.zip:member`, from a directory."""
    at = name.lower().find(ZIP)
    if at < 0:
        return directory / name
    return ZipMember(directory / name[: at + len(ZIP) - 1], name[at + len(ZIP) :])


@functools.lru_cache(maxsize=8)
def _archive(path: Path, size: int, changed: int) -> zipfile.ZipFile:
    """An open archive: its directory, which may be long, is read once and not for each member."""
    return zipfile.ZipFile(path)
