"""Write a directory over a long time, resuming after a killed process.

    .NAME.unfinished/
        the files of NAME, growing
        seen            hashes of items written, for finding duplicates
        progress.json   size of each file safely on disk, renamed into place

NAME appears only once complete.  The holder of its lock writes it; other processes that need it
wait, and take over if the writer dies.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.data.ragged_rows import publish, read_manifest, refuse_foreign, to_disk
from transduce.errors import writing
from transduce.support.limits import read_json
from transduce.support.locks import LockHeldError, awaited_lock

logger = logging.getLogger("transduce")

PROGRESS = "progress.json"
SEEN = "seen"
EXTRAS = (PROGRESS, f"{PROGRESS}.tmp", SEEN)
"""Files needed only while unfinished."""
FORGOTTEN_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class ResumableDirectory:
    """A directory being written.  progress: content of the last `keep`; empty for a fresh start."""

    path: Path
    fingerprint: str
    progress: Mapping[str, Any]

    def keep(self, progress: Mapping[str, Any]) -> None:
        """Record a resume point; the files up to it are already on disk."""
        sizes = {file.name: file.stat().st_size for file in self.path.iterdir()}
        facts = {"fingerprint": self.fingerprint, "sizes": sizes, "progress": progress}
        aside = self.path / f"{PROGRESS}.tmp"
        with aside.open("wb") as file:
            file.write(json.dumps(facts).encode())
            to_disk(file)
        aside.replace(self.path / PROGRESS)


@contextlib.contextmanager
def resume_or_create(
    directory: Path, files: Collection[str], fingerprint: str, version: int
) -> Iterator[ResumableDirectory | None]:
    """Yield a directory that replaces `directory` on success and stays aside on failure.

    files: names allowed beside a manifest; a directory with others is not touched.  Only work with
    the same fingerprint is resumed.  Yields None if another process has finished it meanwhile.
    Raises DataError if it cannot be written.
    """
    with writing(directory):
        directory.parent.mkdir(parents=True, exist_ok=True)
        refuse_foreign(directory, (*files, *EXTRAS))
        _remove_forgotten(directory.parent)
        path = directory.with_name(f".{directory.name}.unfinished")
        with preparation_lock(directory) as waited:
            if waited and read_manifest(directory, fingerprint, version, files):
                yield None
                return
            path.mkdir(exist_ok=True)
            progress = _progress(path, fingerprint)
            if not progress:
                _empty(path)
            try:
                yield ResumableDirectory(path, fingerprint, progress)
                publish(path, directory)
            except BaseException:
                if not _progress(path, fingerprint):
                    shutil.rmtree(path, ignore_errors=True)
                raise
        for extra in EXTRAS:
            (directory / extra).unlink(missing_ok=True)


def _progress(path: Path, fingerprint: str) -> dict[str, Any]:
    """The last resume point; empty if it is of other work, or if files are shorter."""
    try:
        facts = read_json(path / PROGRESS)
        sizes = {name: (path / name).stat().st_size for name in facts["sizes"] if name != PROGRESS}
        whole = all(size >= facts["sizes"][name] for name, size in sizes.items())
        return dict(facts["progress"]) if whole and facts["fingerprint"] == fingerprint else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _empty(path: Path) -> None:
    """Clear the directory, beginning with the file that marks it as resumable."""
    (path / PROGRESS).unlink(missing_ok=True)
    for file in path.iterdir():
        file.unlink()


@contextlib.contextmanager
def preparation_lock(directory: Path) -> Iterator[bool]:
    """Lock a file or directory that is being prepared; True if another process held it first."""

    def waiting() -> None:
        logger.info("waiting for another process that is preparing the same data")

    with awaited_lock(_lock_file(directory.name, directory.parent), waiting) as waited:
        yield waited


def _lock_file(name: str, parent: Path) -> Path:
    return parent / f".{name}.lock"


def _remove_forgotten(parent: Path) -> None:
    for path in parent.glob(".*.unfinished*"):
        with contextlib.suppress(OSError, LockHeldError):
            newest = max(p.stat().st_mtime for p in [path, *path.iterdir()])
            name = path.name.removeprefix(".").partition(".unfinished")[0]
            if newest < time.time() - FORGOTTEN_SECONDS:
                with awaited_lock(_lock_file(name, parent), blocking=False):
                    shutil.rmtree(path, ignore_errors=True)
