"""The run that another one takes the place of, kept until that one is sure to be trained.

So a misspelt file name, found when the old run has been cleared away, does not cost a model.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

DIRECTORY = ".replaced"


def set_aside(run: Path, files: Iterable[Path]) -> None:
    """Move files and directories of a run aside, in their order."""
    let_go(run)
    for file in files:
        (run / DIRECTORY).mkdir(exist_ok=True)
        file.rename(run / DIRECTORY / file.name)


def put_back(run: Path) -> None:
    """Move what was set aside to where it was."""
    aside = run / DIRECTORY
    if aside.is_dir():
        for file in aside.iterdir():
            file.replace(run / file.name)
        aside.rmdir()


def let_go(run: Path) -> None:
    """Delete what was set aside."""
    shutil.rmtree(run / DIRECTORY, ignore_errors=True)
