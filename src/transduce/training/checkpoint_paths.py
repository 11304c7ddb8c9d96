"""Directories of checkpoints in a run."""

from __future__ import annotations

from pathlib import Path


def checkpoints_of(run: Path) -> list[Path]:
    """Checkpoints of a run, oldest first, without incomplete ones."""
    directories = (run / "checkpoints").glob("step-*")
    return sorted(path for path in directories if path.name[5:].isdecimal() and path.is_dir())
