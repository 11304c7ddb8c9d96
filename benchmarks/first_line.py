"""Cost of one line: CPU-seconds and memory of `transduce translate`, from its start to its end.

    python benchmarks/first_line.py --run RUN

Engines in turn, the least of some rounds.  Without PyTorch in the process, most of it is the start
of Python and the reading of options.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

ENGINES = ("native", "pytorch")


def cost_of(command: list[str]) -> tuple[float, float]:
    """CPU-seconds of a command, and the largest memory of its process in MiB."""
    child = os.posix_spawn(command[0], command, os.environ)
    _, status, used = os.wait4(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, command
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Print a line for each engine, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True)
    parser.add_argument("--text", default="one line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    costs: dict[str, list[tuple[float, float]]] = {engine: [] for engine in ENGINES}
    with tempfile.TemporaryDirectory() as directory:
        line = Path(directory, "line.txt")
        line.write_text(f"{given.text}\n", encoding="utf-8")
        for _ in range(given.rounds):
            for engine, actual in costs.items():
                options = ["--engine", engine, "--output", os.fspath(Path(directory, "out.txt"))]
                start = [sys.executable, "-m", "transduce", "translate", given.run, os.fspath(line)]
                actual.append(cost_of([*start, *options]))
    least = {
        engine: [min(values) for values in zip(*result, strict=True)]
        for engine, result in costs.items()
    }
    if given.json:
        names = ("cpu_seconds", "mebibytes")
        rows = {engine: dict(zip(names, values, strict=True)) for engine, values in least.items()}
        print(json.dumps(rows))
    else:
        for engine, (seconds, mebibytes) in least.items():
            print(f"{engine:<10}{seconds:6.2f} CPU-seconds{mebibytes:6.0f} MiB")


if __name__ == "__main__":
    main()
