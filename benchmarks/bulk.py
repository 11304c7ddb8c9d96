"""Bulk translation by Ray's workers against a bare loop over the same shards.

    python benchmarks/bulk.py                                   a tiny model, the worst case
    python benchmarks/bulk.py --run runs/multi30k --beam 5      another one

Both translate a few shards and then three times as many: the difference is the work alone, the rest
is Ray's start.  CPU-seconds are summed over all processes, and depend little on other load of the
machine; seconds are wall-clock time, one worker against one loop.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from transduce.bulk.plan import open_plan
from transduce.bulk.shards import TranslatorSpec, translate_shard
from transduce.run import load

TINY = Path(__file__).parents[1] / "tests" / "runs" / "0.1.0" / "translation"
WORDS = ("a", "the", "good", "dog", "cat", "sees", "runs", "big", "small", "house")
FACTOR = 3
POLL_SECONDS = 0.1
TICKS = os.sysconf("SC_CLK_TCK")


class Spent(NamedTuple):
    """Cost of some work."""

    seconds: float
    cpu: float


def write_shards(directory: Path, shards: int, lines: int) -> None:
    """Files of short lines, all different."""
    directory.mkdir()
    for i in range(shards):
        texts = (f"{WORDS[j % 10]} {WORDS[j // 10 % 10]} {i} {j}\n" for j in range(lines))
        (directory / f"{i:04}.txt").write_text("".join(texts))


def bare(inputs: Path, output: Path, spec: TranslatorSpec) -> Spent:
    """A loop in this process."""
    begin = time.perf_counter(), time.process_time()
    run = spec.load()
    with open_plan(str(inputs), str(output), spec) as plan:
        for shard in plan.todo:
            translate_shard(run, spec.options, shard)
    return Spent(time.perf_counter() - begin[0], time.process_time() - begin[1])


def by_ray(inputs: Path, output: Path, spec: TranslatorSpec) -> Spent:
    """The command, with one worker and all that Ray starts."""
    command = [sys.executable, "-m", "transduce", "translate", str(spec.run), str(inputs)]
    command += ["--ray", "--workers", "1", "--output", str(output), "--device", "cpu"]
    command += ["--beam-size", str(spec.options.beam_size)]
    begin = time.perf_counter()
    seen: dict[int, float] = {}
    environment = {**os.environ, "RAY_ADDRESS": "local", "RAY_USAGE_STATS_ENABLED": "0"}
    with subprocess.Popen(command, env=environment) as process:
        while process.poll() is None:
            seen.update(below(process.pid))
            time.sleep(POLL_SECONDS)
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}")
    return Spent(time.perf_counter() - begin, sum(seen.values()))


def below(root: int) -> Iterator[tuple[int, float]]:
    """CPU-seconds so far of a process and of all below it."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
            spent[int(entry.name)] = (int(fields[11]) + int(fields[12])) / TICKS
        except (OSError, ValueError):
            continue
    for process in spent:
        above: int | None = process
        while above is not None and above != root:
            above = parents.get(above)
        if above == root:
            yield process, spent[process]


def measure(spec: TranslatorSpec, shards: int, lines: int) -> dict[str, Any]:
    """Both ways, for a few shards and for more."""
    spent: dict[str, list[Spent]] = {"bare": [], "ray": []}
    with tempfile.TemporaryDirectory() as name:
        for count in (shards, FACTOR * shards):
            place = Path(name) / str(count)
            place.mkdir()
            write_shards(place / "in", count, lines)
            for way, work in (("bare", bare), ("ray", by_ray)):
                spent[way].append(work(place / "in", place / way, spec))
            for file in (place / "bare").glob("*.txt"):
                if file.read_bytes() != (place / "ray" / file.name).read_bytes():
                    raise SystemExit(f"{file.name} differs")
    more = {way: Spent(*(b - a for a, b in zip(*both, strict=True))) for way, both in spent.items()}
    work = (FACTOR - 1) * shards * lines
    return {
        "lines": [shards * lines, FACTOR * shards * lines],
        "bare": [one._asdict() for one in spent["bare"]],
        "ray": [one._asdict() for one in spent["ray"]],
        "overhead_cpu": more["ray"].cpu / more["bare"].cpu - 1,
        "overhead_seconds": more["ray"].seconds / more["bare"].seconds - 1,
        "start_cpu": spent["ray"][0].cpu - more["ray"].cpu / (FACTOR - 1),
        "start_seconds": spent["ray"][0].seconds - more["ray"].seconds / (FACTOR - 1),
        "bare_lines_per_cpu_second": work / more["bare"].cpu,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, default=TINY)
    parser.add_argument("--shards", type=int, default=6)
    parser.add_argument("--lines", type=int, default=5000, help="of each shard")
    parser.add_argument("--beam", type=int, default=1)
    given = parser.parse_args(arguments)
    run = given.run.resolve()
    options = dataclasses.replace(load(run, "cpu").translator.options, beam_size=given.beam)
    spec = TranslatorSpec(run, options)
    print(json.dumps(measure(spec, given.shards, given.lines), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
