"""A directory that takes long to write, resumed where a killed process left it.

    .NAME.unfinished/
        the files of NAME, growing
        seen            hashes of what has passed, for finding duplicates
        progress.json   how much of each file is on the disk for certain, renamed into place

Nothing of it is NAME before all of it is there.  Whoever holds the lock on it writes it; others
that want the same wait for that, and take it up themselves if its writer dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.data.rows import publish, read_manifest, refuse_foreign, remove_abandoned, to_disk
from transduce.errors import DataError
from transduce.limits import read_json

logger = logging.getLogger("transduce")

PROGRESS = "progress.json"
SEEN = "seen"
EXTRAS = (PROGRESS, f"{PROGRESS}.tmp", SEEN)
"""Files that are of use only while it is unfinished."""
FORGOTTEN_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class ResumableDirectory:
    """What is being written.

    path: where.  progress: what the last `keep` said; empty where nothing can be taken up.
    """

    path: Path
    fingerprint: str
    progress: Mapping[str, Any]

    def keep(self, progress: Mapping[str, Any]) -> None:
        """Note a point to resume from; the files up to it are on the disk already."""
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
    """A directory that takes the place of `directory` if all goes well, and stays aside if not.

    files: what may stand in `directory` beside a manifest; of anything else it is left alone.
    fingerprint: only what was begun with the same is taken up.  None where another process was
    waited for that has made all of it, as its manifest says with that fingerprint and `version`.
    Raises DataError when it cannot be written.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        refuse_foreign(directory, (*files, *EXTRAS))
        remove_abandoned(directory)
        _remove_forgotten(directory.parent)
        path = directory.with_name(f".{directory.name}.unfinished")
        with directory_lock(path) as waited:
            if waited and read_manifest(directory, fingerprint, version, files):
                shutil.rmtree(path)
                yield None
                return
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
    except OSError as error:
        raise DataError(f"{directory} cannot be written: {error.strerror or error}") from error


def _progress(path: Path, fingerprint: str) -> dict[str, Any]:
    """What was kept there; empty where it is of something else, or files are less than that."""
    try:
        facts = read_json(path / PROGRESS)
        sizes = {name: (path / name).stat().st_size for name in facts["sizes"] if name != PROGRESS}
        whole = all(size >= facts["sizes"][name] for name, size in sizes.items())
        return dict(facts["progress"]) if whole and facts["fingerprint"] == fingerprint else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _empty(path: Path) -> None:
    """What says that there is something to take up goes first."""
    (path / PROGRESS).unlink(missing_ok=True)
    for file in path.iterdir():
        file.unlink()


@contextlib.contextmanager
def directory_lock(path: Path) -> Iterator[bool]:
    """Make a directory and hold it; whether another process had it, and was waited for.

    What is held dies with its holder.  Whoever is done with it may rename or delete it.
    """
    waited = False
    while True:
        path.mkdir(exist_ok=True)
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # its holder has just renamed it
            continue
        try:
            if not _is_free(handle):
                if not waited:
                    logger.info("waiting for another process that is preparing the same data")
                waited = True
                fcntl.flock(handle, fcntl.LOCK_EX)
            if _same(path, handle):
                yield waited
                return
        finally:
            os.close(handle)


def _is_free(handle: int) -> bool:
    """Whether nobody holds it; if so, it is held from now on."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same(path: Path, handle: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(handle).st_ino
    except FileNotFoundError:
        return False


def _remove_forgotten(parent: Path) -> None:
    """Clear what nobody has taken up for long, such as of data that have changed since."""
    for path in parent.glob(".*.unfinished"):
        with contextlib.suppress(OSError):
            if max(p.stat().st_mtime for p in [path, *path.iterdir()]) < (
                time.time() - FORGOTTEN_SECONDS
            ):
                handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    if _is_free(handle):
                        shutil.rmtree(path, ignore_errors=True)
                finally:
                    os.close(handle)
