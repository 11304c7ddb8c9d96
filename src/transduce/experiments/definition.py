"""Definition of a sweep, `sweep.toml` in its directory.

DIRECTORY/
    sweep.toml      the recipe, varied settings, number of trials
    study.journal   Optuna's storage: the runs, with their settings and outcomes
    001/ 002/ …     the runs, each an ordinary run directory
    001.log …       their output, if several were trained at a time
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.config import load_toml, to_toml
from transduce.errors import RunError
from transduce.training.weights import write_text

SWEEP_FILE = "sweep.toml"


@dataclass(frozen=True)
class Definition:
    """Definition of a sweep."""

    recipe: Mapping[str, Any]
    """Settings shared by all runs, as written by the user."""
    varied: tuple[str, ...]
    """Varied settings, as for `--set`."""
    search: int = 0
    """Trials of a search; 0 for a grid."""
    fixed: tuple[str, ...] = ()
    """Settings with one value from `--set`.  Kept apart from the recipe, as they may belong to a
    varied `kind`."""

    def write(self, directory: Path) -> None:
        """Write it to the sweep's directory."""
        write_text(directory / SWEEP_FILE, to_toml(self))

    @staticmethod
    def read(directory: Path) -> Definition:
        """Read it from a directory.  Raises RunError if it is damaged."""
        settings = load_toml(directory / SWEEP_FILE)
        try:
            varied, fixed = tuple(map(str, settings["varied"])), tuple(map(str, settings["fixed"]))
            return Definition(dict(settings["recipe"]), varied, int(settings["search"]), fixed)
        except (KeyError, TypeError, ValueError):
            raise RunError(
                f"{directory / SWEEP_FILE} is damaged; start a new sweep in another --runs"
            ) from None
