"""Feeds many lines through `transduce translate` by a pipe: is memory steady, is every line there?

    python benchmarks/soak.py                                    two million lines, a tiny model
    python benchmarks/soak.py --run runs/spelling --beam 5       another model

The lines are numbers in letters, all different, so that a line lost, doubled or out of place shows
in the records that come back: each holds its own source.  Every few thousand lines the resident
memory of the translating process is noted; printed are its slope in bytes per line over the later
half, and the most that it ever was.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

MIB = 2**20
TINY = Path(__file__).parents[1] / "tests" / "runs" / "0.1.0" / "translation"
LETTERS = "abcdefghij"


def line(number: int) -> str:
    """A short line that no other number has."""
    return "".join(LETTERS[int(digit)] for digit in str(number))


def feed(pipe: IO[bytes], count: int) -> None:
    """Write the lines as fast as they are taken."""
    with pipe:
        for first in range(0, count, 1000):
            lines = (line(i) for i in range(first, min(first + 1000, count)))
            pipe.write("".join(f'{{"source": "{text}"}}\n' for text in lines).encode())


def resident(process: int) -> float:
    """MiB of memory that a process holds."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def soak(command: Sequence[str], count: int, every: int) -> dict[str, Any]:
    """Figures of one command that gets the lines and gives them back as records.

    Raises SystemExit for a line that is not the one that was due.
    """
    begin = time.perf_counter()
    notes: list[tuple[int, float]] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        threading.Thread(target=feed, args=(process.stdin, count), daemon=True).start()
        number = -1
        for number, answer in enumerate(process.stdout):
            if json.loads(answer)["source"] != line(number):
                raise SystemExit(f"line {number + 1} is {answer!r}, not that of {line(number)}")
            if number % every == 0:
                notes.append((number, resident(process.pid)))
        code = process.wait()
    if code or number + 1 != count:
        raise SystemExit(f"{number + 1} of {count} lines came back; exit code {code}")
    later = np.array(notes[len(notes) // 2 :])
    slope = float(np.polyfit(later[:, 0], later[:, 1], 1)[0]) if len(later) > 1 else 0.0
    return {
        "lines": count,
        "seconds": time.perf_counter() - begin,
        "mib": dict(some_of(notes)),
        "most_mib": max(held for _, held in notes),
        "bytes_per_line": slope * MIB,
    }


def some_of(notes: Sequence[tuple[int, float]], shown: int = 10) -> Iterator[tuple[int, Any]]:
    """Some of the notes, the first and the last among them."""
    places = sorted({round(i * (len(notes) - 1) / (shown - 1)) for i in range(shown)})
    return ((notes[i][0], round(notes[i][1], 1)) for i in places)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, default=TINY)
    parser.add_argument("--lines", type=int, default=2_000_000)
    parser.add_argument("--every", type=int, default=1000, help="lines between looks at the memory")
    parser.add_argument("--beam", type=int, default=1)
    given = parser.parse_args(arguments)
    command = [sys.executable, "-m", "transduce", "translate", str(given.run), "--jsonl"]
    command += ["--beam-size", str(given.beam), "--threads", "1"]
    print(json.dumps(soak(command, given.lines, given.every), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
