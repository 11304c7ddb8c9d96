"""Files of a run directory: checks of kind, place and size, paths of checkpoints, backup of a
run in replacement.

A run directory may come from an untrusted source. A link in it could name any file of the machine,
a named pipe would block forever, and a huge vocabulary would exhaust memory.

So neither a misspelt file name nor a kill costs a model: the directory `WHOLE` has all of the old
run, `MOVING` parts to restore, and `GONE` parts to delete.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from transduce.errors import RunError
from transduce.support.files import RUN_FILE_LIMIT, read_json

READ_WHOLE = (".toml", ".json", ".jsonl", ".model")
"""Recipes, vocabularies, logs and such; weights are checked by their own head."""


def cache_of(run: Path) -> Path:
    """Directory of encoded data, shared by the runs beside each other."""
    return run.parent / ".cache"


def check_name(run: Path) -> None:
    """Raises RunError for a directory in which files of weights can be neither read nor written."""
    try:
        str(run).encode()
    except UnicodeEncodeError:
        raise RunError(
            f"{run}: the path is not valid UTF-8, as safetensors requires; rename the directory "
            "or choose another"
        ) from None


def check_files(run: Path) -> None:
    """Raise RunError for links to files outside a run directory, and for special files in it.

    Subdirectories are not checked: no file in them is needed to use a run.
    """
    check_name(run)
    try:
        entries = list(os.scandir(run))
        home = run.resolve()
        for entry in entries:
            target = Path(entry.path).resolve()
            if entry.is_symlink() and not entry.is_dir() and not target.is_relative_to(home):
                raise RunError(
                    f"{entry.path} is a link to a file outside the run directory; if you trust it, "
                    f"copy the run with cp -rL"
                )
            if not entry.is_symlink() or target.exists():
                _check_kind(entry)
    except OSError as error:
        raise RunError(f"{error.filename or run} cannot be read: {error.strerror}") from None


def read_json_of(run: Path, name: str, kind: str) -> Any:
    """Content of a JSON file of a run.  Raises RunError if it is missing or damaged.

    kind: of the directory, for the message.
    """
    try:
        return read_json(run / name)
    except OSError:
        raise RunError(f"{run} has no {name}; is it a complete {kind}?") from None
    except ValueError as error:
        raise RunError(f"{run / name} is damaged ({error}); copy or train the run again") from None


def check_written_to(run: Path) -> None:
    """Raises RunError if writing into a run directory would write elsewhere.

    Training would also delete files below a link.
    """
    home = run.resolve()
    for directory, directories, files in os.walk(run):
        for name in (*directories, *files):
            entry = Path(directory, name)
            if entry.is_symlink() and not entry.resolve().is_relative_to(home):
                raise RunError(
                    f"{entry} links outside the run directory, where training would write and "
                    "delete; link the whole run directory instead"
                )


def _check_kind(entry: os.DirEntry[str]) -> None:
    status = entry.stat()
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise RunError(f"{entry.path} is neither a file nor a directory; delete it")
    if entry.name.endswith(READ_WHOLE) and status.st_size > RUN_FILE_LIMIT.most() << 20:
        raise RunError(
            f"{entry.path} has {status.st_size >> 20} MiB, which exceeds the limit for such files; "
            f"{RUN_FILE_LIMIT.remedy()}"
        )


def checkpoints_of(run: Path) -> list[Path]:
    """Checkpoints of a run, oldest first, without incomplete ones."""
    directories = (run / "checkpoints").glob("step-*")
    return sorted(path for path in directories if path.name[5:].isdecimal() and path.is_dir())


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
