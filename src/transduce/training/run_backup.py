"""Backup of a run in replacement, kept until the new run has started training.

So neither a misspelt file name nor a kill costs a model: the directory `WHOLE` has all of the old
run, `MOVING` parts to restore, and `GONE` parts to delete.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

WHOLE, MOVING, GONE = ".replaced", ".replaced.moving", ".replaced.gone"


def back_up(run: Path, files: Sequence[Path]) -> None:
    """Move files and directories of a run aside, in order."""
    if files:
        (run / MOVING).mkdir()
        for file in files:
            file.rename(run / MOVING / file.name)
        (run / MOVING).rename(run / WHOLE)


def restore(run: Path, made: Callable[[Path], Iterable[Path]]) -> None:
    """Restore the backup; `made` files of the new run are deleted."""
    if (run / WHOLE).is_dir():
        for file in list(made(run)):
            shutil.rmtree(file) if file.is_dir() else file.unlink()
        (run / WHOLE).rename(run / MOVING)
    finish_restore(run)


def finish_restore(run: Path) -> None:
    """Finish a restoration that was interrupted."""
    if (run / MOVING).is_dir():
        # the recipe first: it makes a directory a run
        for file in sorted((run / MOVING).iterdir(), key=lambda file: file.name != "recipe.toml"):
            file.rename(run / file.name)
        (run / MOVING).rmdir()


def discard(run: Path) -> None:
    """Delete the backup."""
    if (run / WHOLE).is_dir():
        shutil.rmtree(run / GONE, ignore_errors=True)  # of a kill in the middle of the last line
        (run / WHOLE).rename(run / GONE)
    shutil.rmtree(run / GONE, ignore_errors=True)
