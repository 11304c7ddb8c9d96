"""Directories made once for all workers that test beside each other."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


class SharedDirectories:
    """Runs and data of a session, each made by the first test that needs it."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        root = factory.getbasetemp()
        self._root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def __call__(self, name: str, make: Callable[[Path], object]) -> Path:
        """The directory of that name, which `make` fills."""
        path = self._root / f"shared-{name}"
        with FileLock(f"{path}.lock"):
            if not (path / "complete").exists():
                path.mkdir()
                make(path)
                (path / "complete").touch()
        return path
