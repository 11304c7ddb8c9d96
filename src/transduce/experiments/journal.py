"""Journal of a sweep, for resuming it.

DIRECTORY/
    sweep.toml      the recipe, varied settings, number of trials
    runs.jsonl      a line at the start of a run, and one at its end
    001/ 002/ …     the runs, each an ordinary run directory
    001.log …       their output, if several were trained at a time
    study.journal   Optuna's storage of a search
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transduce.config import load_toml, to_toml
from transduce.errors import RunError
from transduce.experiments.grid import Overrides
from transduce.experiments.jobs import JobResult
from transduce.limits import from_json
from transduce.training.weights import write_text

_log = logging.getLogger("transduce")

SWEEP_FILE = "sweep.toml"
RUNS_FILE = "runs.jsonl"


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
            varied = tuple(map(str, settings["varied"]))
            fixed = tuple(map(str, settings.get("fixed", ())))  # older ones are in the recipe
            return Definition(dict(settings["recipe"]), varied, int(settings["search"]), fixed)
        except (KeyError, TypeError, ValueError):
            raise RunError(
                f"{directory / SWEEP_FILE} is damaged; start a new sweep in another --runs"
            ) from None


def runs_in(path: Path) -> list[Path]:
    """Runs of a sweep's directory, in order; for another path, the path itself."""
    if not (path / SWEEP_FILE).is_file():
        return [path]
    runs = sorted(file.parent for file in path.glob("*/recipe.toml"))
    ended = {path / name: result for _, name, result in _remembered(path)}
    for run, result in ended.items():
        if result is not None and result.error:
            how = "compared as far as it got" if run in runs else "skipped"
            _log.warning("%s failed and is %s: %s", run, how, result.error)
    return runs


class SweepJournal:
    """Runs of a sweep by their overrides, with their outcomes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.names: dict[Overrides, str] = {}
        self.results: dict[str, JobResult] = {}
        for overrides, name, result in _remembered(directory):
            self.names[overrides] = name
            if result is not None:
                self.results[name] = result
        write_text(directory / RUNS_FILE, "".join(map(self._line, self.names)))

    def name(self, overrides: Overrides) -> str:
        """Name of the run with these overrides: the earlier one, or else the next number."""
        if overrides not in self.names:
            self.names[overrides] = f"{max(map(int, self.names.values()), default=0) + 1:03d}"
            self._append(overrides)
        return self.names[overrides]

    def end(self, overrides: Overrides, result: JobResult) -> None:
        """Record the outcome of a run."""
        self.results[self.names[overrides]] = result
        self._append(overrides)

    def _append(self, overrides: Overrides) -> None:
        with (self.directory / RUNS_FILE).open("a", encoding="utf-8", newline="\n") as file:
            file.write(self._line(overrides))

    def _line(self, overrides: Overrides) -> str:
        name = self.names[overrides]
        line: dict[str, Any] = {"run": name, "overrides": overrides}
        if name in self.results:
            line["result"] = dataclasses.asdict(self.results[name])
        return json.dumps(line, ensure_ascii=False) + "\n"


def _remembered(directory: Path) -> Iterator[tuple[Overrides, str, JobResult | None]]:
    """Overrides, name and outcome of each run, line by line; later lines win."""
    path = directory / RUNS_FILE
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    for written in text.split("\n"):  # JSON escapes \n, but not other line ends
        try:
            line = from_json(written)
            result = JobResult(**line["result"]) if "result" in line else None
            yield tuple(line["overrides"]), line["run"], result
        except (ValueError, KeyError, TypeError):
            continue  # damaged, or being written when the sweep was killed
