"""Definition of a sweep, `sweep.toml` in its directory.

DIRECTORY/
    sweep.toml      the recipe, the settings given with `--set`, number of trials
    study.journal   Optuna's storage: the runs, with their settings and outcomes
    001/ 002/ …     the runs, each an ordinary run directory
    001.log …       their output, if several were trained at a time
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.errors import RunError
from transduce.settings.paths import literal
from transduce.settings.sections import load_toml, to_toml
from transduce.training.weights import write_text

SWEEP_FILE = "sweep.toml"


@dataclass(frozen=True)
class Definition:
    """Definition of a sweep, in the user's words."""

    recipe: Mapping[str, Any]
    """Settings of the recipe."""
    overrides: tuple[str, ...]
    """Settings with a value or several, as for `--set`."""
    search: int = 0
    """Trials of a search; 0 for a grid."""
    started_in: str = "."
    """Working directory, from which relative paths in the settings start."""
    of_a_run: bool = False
    """True for the recipe of a run, in which `~` and `$` stand for themselves."""

    def write(self, directory: Path) -> None:
        """Write it to the sweep's directory."""
        write_text(directory / SWEEP_FILE, to_toml(self))

    @staticmethod
    def read(directory: Path) -> Definition:
        """Read it from a directory.  Raises RunError if it is damaged."""
        settings = load_toml(directory / SWEEP_FILE)
        try:
            recipe, of_a_run = dict(settings["recipe"]), bool(settings["of_a_run"])
            return Definition(
                literal(recipe) if of_a_run else recipe,
                tuple(map(str, settings["overrides"])),
                int(settings["search"]),
                str(settings["started_in"]),
                of_a_run,
            )
        except (KeyError, TypeError, ValueError):
            raise RunError(
                f"{directory / SWEEP_FILE} is damaged; start a new sweep in another --runs"
            ) from None
