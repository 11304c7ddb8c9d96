"""Inject the faults of `mutants.toml`, one at a time, and count those that their tests see.

    python tests/mutants/run.py [--jobs N] [--only WORD] [--least PERCENT]

Each is written into a copy of the working tree; the tree itself stays as it is.  Faults that need
Node or a C++ compiler are left out where there is none.  Exits with 1 below the wanted share, with
2 if the list does not fit the sources or if a test fails without a fault.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.toml")
SUFFIXES = (".py", ".h", ".cpp", ".js")
SECONDS = 120
"""Time of a processor for the tests of a fault; a fault that makes them go on for ever is seen."""
NEEDS = {".h": ("c++", "g++", "clang++"), ".cpp": ("c++", "g++", "clang++"), ".js": ("node",)}
"""Programs without which the tests of a file are skipped: one of each."""


class ListError(Exception):
    """The list does not fit the sources."""


@dataclass(frozen=True)
class Mutant:
    """A fault: a text that occurs once in the sources, and the text in its place.

    tests: arguments of pytest, with files by name alone, since they may move.
    """

    area: str
    old: str
    new: str
    tests: tuple[str, ...]
    file: Path = Path()

    @property
    def name(self) -> str:
        """Place and first line that differs, for messages."""
        pairs = zip(self.old.splitlines(), [*self.new.splitlines(), ""], strict=False)
        line = next((old for old, new in pairs if old != new), self.old)
        return f"{self.area}: {self.file.name}: {line.strip()[:70]}"


def read_list(root: Path, path: Path) -> list[Mutant]:
    """The mutants of a list, with their files.  Raises ListError naming all that do not fit."""
    sources = {
        file: file.read_text(encoding="utf-8")
        for file in sorted((root / "src").rglob("*"))
        if file.suffix in SUFFIXES
    }
    tests = {file.name: file for file in sorted((root / "tests").rglob("test_*.py"))}
    mutants, errors = [], []
    with path.open("rb") as content:
        rows = tomllib.load(content)["mutant"]
    for row in rows:
        old = row["old"].strip("\n")
        places = [file for file, text in sources.items() for _ in range(text.count(old))]
        if len(places) != 1:
            errors.append(f"{row['area']}: occurs {len(places)} times in src: {old!r}")
            continue
        named = [part.partition("::") for part in row["tests"]]
        errors += [f"{old!r}: no test file {name}" for name, _, _ in named if name not in tests]
        if errors:
            continue
        paths = (f"{tests[name].relative_to(root)}{mark}{test}" for name, mark, test in named)
        file = places[0].relative_to(root)
        mutants.append(Mutant(row["area"], old, row["new"].strip("\n"), tuple(paths), file))
    if errors:
        raise ListError("\n".join(errors))
    return mutants


def copy_of(root: Path, directory: Path) -> Path:
    """A copy of the files that git knows or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (root / name).is_file():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, directory / name)
    return directory


def limit_time() -> None:
    """End this process after some time of a processor; waiting ends by pytest's own limit."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def run_tests(
    tree: Path, tests: Iterable[str], before: Callable[[], None] | None = limit_time
) -> tuple[str, str]:
    """The outcome of some tests in a tree: "passed", "failed", "hung", "skipped" or "broken" where
    they could not be run; and their output."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",  # times of files are too coarse for stale bytecode
        "OMP_NUM_THREADS": "1",
        "XDG_CACHE_HOME": str(tree / ".cache"),
        "TRANSDUCE_ENGINE_FLAGS": "-O1",
    }
    done = subprocess.run(
        command, cwd=tree, env=environment, capture_output=True, text=True, preexec_fn=before
    )
    if done.returncode < 0:
        return "hung", done.stdout
    if done.returncode == 0:
        passed = re.search(r"\b[1-9][0-9]* passed", done.stdout)
        return ("passed" if passed else "skipped"), done.stdout
    return ("failed" if done.returncode == 1 else "broken"), done.stdout + done.stderr


class Trees:
    """Copies of the tree, one for each job."""

    def __init__(self, root: Path, directory: Path, count: int) -> None:
        self._free: queue.Queue[Path] = queue.Queue()
        first = copy_of(root, directory / "0")
        self._free.put(first)
        for number in range(1, count):
            self._free.put(Path(shutil.copytree(first, directory / str(number))))

    def outcome(self, mutant: Mutant) -> tuple[str, str]:
        """Outcome of the tests of a mutant, in a copy of its own, which is restored."""
        tree = self._free.get()
        file = tree / mutant.file
        before = file.read_text(encoding="utf-8")
        try:
            file.write_text(before.replace(mutant.old, mutant.new), encoding="utf-8")
            return run_tests(tree, mutant.tests)
        finally:
            file.write_text(before, encoding="utf-8")
            self._free.put(tree)

    def check(self, mutants: Sequence[Mutant]) -> None:
        """Raise ListError if a test fails without any fault, or does not exist."""
        tree = self._free.get()
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        outcome, output = run_tests(tree, tests, before=None)
        self._free.put(tree)
        if outcome not in ("passed", "skipped"):
            raise ListError(f"without a fault the tests {outcome}:\n{output[-3000:]}")


def can_be_run(mutant: Mutant) -> bool:
    """True if there is a program that the tests of its file need."""
    programs = NEEDS.get(mutant.file.suffix, ())
    return not programs or any(map(shutil.which, programs))


def main() -> int:
    """Run the mutants; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--only", default="", help="mutants whose area, file or line has this text")
    parser.add_argument(
        "--least", type=float, default=90.0, help="wanted share of seen faults, in percent"
    )
    asked = parser.parse_args()
    began = time.monotonic()
    try:
        every = [mutant for mutant in read_list(ROOT, LIST) if asked.only in mutant.name]
        mutants = [mutant for mutant in every if can_be_run(mutant)]
        with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(asked.jobs) as pool:
            trees = Trees(ROOT, Path(directory), asked.jobs)
            trees.check(mutants)
            outcomes = Counter[str]()
            for mutant, (outcome, output) in zip(
                mutants, pool.map(trees.outcome, mutants), strict=True
            ):
                outcomes[outcome] += 1
                if outcome in ("passed", "skipped", "broken"):
                    last = output.strip().splitlines()[-1:] if outcome == "broken" else []
                    print(f"{LABELS[outcome]}: {mutant.name}", *last, flush=True)
    except ListError as error:
        print(error, file=sys.stderr)
        return 2
    seen = outcomes["failed"] + outcomes["hung"]
    decided = seen + outcomes["passed"]
    share = 100 * seen / max(decided, 1)
    left_out = len(every) - decided - outcomes["broken"]
    print(
        f"{seen} of {decided} faults are seen ({share:.0f} %), {left_out} left out, "
        f"{outcomes['broken']} broken; {time.monotonic() - began:.0f} s"
    )
    return 2 if outcomes["broken"] else int(share < asked.least)


LABELS = {"passed": "not seen", "skipped": "skipped", "broken": "broken"}


if __name__ == "__main__":
    sys.exit(main())
