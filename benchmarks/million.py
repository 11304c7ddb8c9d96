"""A long file through `transduce translate`: lines per CPU-second, memory, and the order of lines.

    python benchmarks/million.py --run RUN --lines 1000000
    python benchmarks/million.py --run RUN --lines 20000 --engine pytorch

The file has short lines, all different, since equal ones are decoded once.  Memory is read while
the command runs, after a tenth of the lines and at its largest.  Outputs are then compared with
those of every thousandth line, translated in a file of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from soak import resident

WORDS = ("a", "the", "good", "dog", "cat", "sees", "runs", "big", "small", "house")
STRIDE = 1000
POLL_SECONDS = 0.2


class Cost(NamedTuple):
    """Of one command: CPU-seconds, resident memory in MiB at a tenth of the output and at most."""

    cpu: float
    early_mib: float
    peak_mib: float


def lines_of(count: int) -> list[str]:
    """Short lines, all different."""
    chance = random.Random(1)
    return [f"{' '.join(chance.choices(WORDS, k=chance.randint(3, 8)))} {i}" for i in range(count)]


def translate(
    given: argparse.Namespace, lines: list[str], directory: Path
) -> tuple[Cost, list[str]]:
    """Translate a file of lines by the command, and read the output, one line for each."""
    source, target = directory / "source.txt", directory / "target.txt"
    source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "transduce", "translate", str(given.run), str(source)]
    command += ["--engine", given.engine, "--precision", given.precision, "--device", "cpu"]
    command += ["--beam-size", str(given.beam), "--threads", "1"]
    sizes: list[tuple[int, float]] = []
    with target.open("wb") as out:
        process = subprocess.Popen(command, stdout=out)
        while True:
            sizes.append((target.stat().st_size, resident(process.pid)))
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            time.sleep(POLL_SECONDS)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{command} failed")
    tenth = target.stat().st_size / 10
    early = max((mib for size, mib in sizes if size <= tenth), default=0.0)
    cost = Cost(used.ru_utime + used.ru_stime, early, max(mib for _, mib in sizes))
    return cost, target.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--engine", default="native")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--beam", type=int, default=1)
    given = parser.parse_args()
    lines = lines_of(given.lines)
    with tempfile.TemporaryDirectory() as directory:
        cost, outputs = translate(given, lines, Path(directory))
        few, expected = translate(given, lines[::STRIDE], Path(directory))
    assert len(outputs) == len(lines)
    found = {
        "lines": len(lines),
        "cpu_seconds": round(cost.cpu, 1),
        "lines_per_cpu_second": round((len(lines) - len(expected)) / (cost.cpu - few.cpu)),
        "early_mib": round(cost.early_mib),
        "peak_mib": round(cost.peak_mib),
        "in_order": outputs[::STRIDE] == expected,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
