"""Decoding by Marian itself (`pip install pymarian`) and by the native engine, one after the other.

A run is exported by `--format bergamot`, so that both compute the same model in float32:

    python benchmarks/marian_itself.py RUN LINES --marian OTHER/bin/python

OTHER is an environment with pymarian.  Prints lines per CPU-second, one thread, of each round, and
the lines that are equal.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

WAYS = {"one by one, greedy": (1, 1), "32 together, beam of 4": (32, 4)}
"""Lines together, and the beam."""
MARIAN = """
import json, sys, time, pymarian
config, rounds, ways = json.loads(sys.argv[1])
lines = sys.stdin.read().splitlines()
for together, beam in ways:
    translator = pymarian.Translator(
        config=config, beam_size=beam, normalize=1, mini_batch=together, maxi_batch=100,
        maxi_batch_sort="src", cpu_threads=1, max_length=1000, quiet=True, quiet_translation=True)
    translator.translate(lines[:8])
    for _ in range(rounds):
        begun = time.process_time()
        texts = translator.translate(lines)
        print(json.dumps([time.process_time() - begun, texts]), flush=True)
"""


def ours(run: Any, lines: list[str], together: int, beam: int) -> tuple[float, list[str]]:
    """CPU-seconds and texts of the native engine."""
    options = replace(
        run.translator.options, beam_size=beam, length_penalty="mean", max_length_ratio=3.0
    )
    begun, texts = time.process_time(), []
    order = sorted(range(len(lines)), key=lambda i: len(lines[i]))
    for start in range(0, len(lines), together):
        texts += run.translate_batch([lines[i] for i in order[start : start + together]], options)
    spent = time.process_time() - begun
    placed = dict(zip(order, texts, strict=True))
    return spent, [placed[i].text for i in range(len(lines))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("lines", type=Path)
    parser.add_argument("--marian", default=sys.executable, help="Python with pymarian")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    import transduce
    from transduce.runs.exporting import export_run

    lines = arguments.lines.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as place:
        directory = export_run(arguments.run, Path(place) / "model", form="bergamot")
        given = json.dumps([str(directory / "marian.yml"), arguments.rounds, list(WAYS.values())])
        done = subprocess.run(
            [arguments.marian, "-c", MARIAN, given],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=True,
        )
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    run = transduce.load(arguments.run, "cpu", engine="native", threads=1)
    for i, (way, (together, beam)) in enumerate(WAYS.items()):
        theirs = records[i * arguments.rounds : (i + 1) * arguments.rounds]
        mine = [ours(run, lines, together, beam) for _ in range(arguments.rounds)]
        rates = [
            len(lines) / statistics.median(seconds for seconds, _ in kind)
            for kind in (mine, theirs)
        ]
        same = sum(a == b for a, b in zip(mine[0][1], theirs[0][1], strict=True))
        print(
            f"{way}: native {rates[0]:,.0f}, Marian {rates[1]:,.0f} lines per CPU-second "
            f"({rates[0] / rates[1]:.2f}); {same} of {len(lines)} lines equal"
        )


if __name__ == "__main__":
    main()
