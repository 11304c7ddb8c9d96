"""Arrays that the ranks of a machine share: made by one of them, mapped by all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.errors import writing
from transduce.support.files import awaited_lock, user_cache

JOB = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT")
"""Variables that the ranks of one start have in common."""
OPENED = "opened"
"""File with a byte of each rank that has mapped the arrays."""
LEFTOVER = 86_400.0
"""Seconds after which the files of a job that was killed are deleted."""


def once_per_machine(
    key: Callable[[], object], make: Callable[[], Sequence[NDArray[Any]]]
) -> list[NDArray[Any]]:
    """Arrays for all ranks of this machine, made by the first that asks and mapped from its files,
    which are deleted once all have; a single process makes its own.

    key: identifies the arrays within the job.  Raises DataError if they cannot be written.
    """
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if ranks == 1:
        return list(make())
    job = [os.environ.get(name) for name in JOB]
    cache = user_cache("shared")
    path = cache / hashlib.sha256(repr((job, key())).encode()).hexdigest()[:32]
    with writing(path):
        cache.mkdir(parents=True, exist_ok=True)
        with awaited_lock(path.with_suffix(".lock")):
            if not path.exists():
                _delete_leftovers(cache)
                aside = cache / f".{uuid.uuid4().hex}"
                aside.mkdir()
                for number, array in enumerate(make()):
                    np.save(aside / f"{number}.npy", array)
                aside.rename(path)
            names = sorted(path.glob("*.npy"), key=lambda name: int(name.stem))
            arrays = [np.asarray(np.load(name, mmap_mode="r")) for name in names]
            with (path / OPENED).open("ab") as opened:
                opened.write(b".")
                is_last = opened.tell() >= ranks
            if is_last:
                shutil.rmtree(path, ignore_errors=True)
    return arrays


def _delete_leftovers(cache: Path) -> None:
    """Delete the files of jobs that were killed."""
    for left in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another job has deleted it meanwhile
            if left.stat().st_mtime < time.time() - LEFTOVER:
                shutil.rmtree(left, ignore_errors=True)
