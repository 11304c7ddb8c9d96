"""Figures of a GPU in one short visit: checks, training, decoding, recipes, lengths, profiles.

    python benchmarks/gpu.py --output gpu.json
    python benchmarks/gpu.py --parts checks,training-base --seconds 150
    python benchmarks/gpu.py --dry-run

Parts run in order of importance, each in its own process with its own limit, until `--seconds` are
over.  A part prints each result at once, so an interrupted or failed part keeps its results.  The
object on stdout has an entry for each part, with the CUDA graphs that were recorded and the graphs
that were compiled; where there is a floor, it stands beside the figure.  `--output` is rewritten
after each part; a later call with the same file repeats only parts that failed or are not in it.
`multi30k` needs TRANSDUCE_DATA, and continues its training in `--runs`.  `--dry-run` runs a minimum
of every part on the CPU, to test the script.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gpu_checks
import gpu_decoding
import gpu_lengths
import gpu_multi30k
import gpu_training
import torch
from gpu_work import Findings, Scale, counted_work

Measure = Callable[[Scale], Iterator[Findings]]


class Part(NamedTuple):
    """A part of the visit.  seconds: its limit, the start of its process included."""

    measure: Measure
    seconds: float


def of_size(measure: Callable[[Scale, str], Iterator[Findings]], size: str) -> Measure:
    """The measure at one size of the model."""
    return lambda scale: measure(scale, size)


PARTS = {
    "checks": Part(gpu_checks.measure, 60),
    "training-base": Part(of_size(gpu_training.against_peers, "base"), 50),
    "decoding-512": Part(
        functools.partial(gpu_decoding.measure, batches=(512,), precisions=("bf16",)), 50
    ),
    "multi30k": Part(gpu_multi30k.measure, 300),
    "recipe": Part(gpu_training.shipped, 50),
    "compile": Part(gpu_training.compiled, 75),
    "training-tiny": Part(of_size(gpu_training.against_peers, "tiny"), 30),
    "training-big": Part(of_size(gpu_training.against_peers, "big"), 30),
    "profiles": Part(gpu_decoding.profiles, 25),
    "decoding-1": Part(functools.partial(gpu_decoding.measure, batches=(1,)), 20),
    "lengths": Part(gpu_lengths.measure, 20),
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = command_line().parse_args(arguments)
    if options.part:
        scale = Scale.of(options.dry_run, options.runs)
        with counted_work() as counts:
            for findings in PARTS[options.part].measure(scale):
                print(json.dumps(findings | counts()), flush=True)
        return 0
    names = options.parts.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        print(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    if not options.dry_run and not torch.cuda.is_available():
        print("PyTorch sees no GPU here; --dry-run runs on the CPU", file=sys.stderr)
        return 1
    try:
        result = earlier(options.output, machine(options.dry_run))
    except ValueError as error:
        print(f"{options.output}: {error}; give another --output", file=sys.stderr)
        return 2
    end = time.monotonic() + (options.seconds or (3600 if options.dry_run else 560))
    for name in names:
        if is_complete(result.get(name)):
            continue
        left = end - time.monotonic()
        if left < 10:
            result[name] = {"left_out": "no time left"}
            continue
        limit = left if options.dry_run else min(left, PARTS[name].seconds)
        result[name] = run(name, limit, options.runs, options.dry_run)
        print(f"{name}: {json.dumps(result[name])}", file=sys.stderr, flush=True)
        if options.output is not None:
            write(options.output, result)
    print(json.dumps(result))
    return 0


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--parts", default=",".join(PARTS), help="separated by commas, in order")
    parser.add_argument("--seconds", type=float, help="of all parts together; 560 on a GPU")
    parser.add_argument(
        "--output", type=Path, help="file for the object; continued if there is one"
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), help="directory of long trainings"
    )
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with little work")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    return parser


def earlier(output: Path | None, here: dict[str, Any]) -> dict[str, Any]:
    """Parts of an earlier call, or none.  Raises ValueError if the file holds something else, or
    figures of another machine."""
    if output is None or not output.exists():
        return {"machine": here}
    try:
        result = json.loads(output.read_text(encoding="utf-8"))
    except ValueError:
        raise ValueError("is not a file of this script") from None
    if not isinstance(result, dict) or not isinstance(result.get("machine"), dict):
        raise ValueError("is not a file of this script")
    if result["machine"] != here:
        raise ValueError(f"has figures of another machine, {result['machine']}")
    return result


def is_complete(part: dict[str, Any] | None) -> bool:
    """True if a part need not be repeated."""
    return part is not None and not {"error", "left_out"} & part.keys()


def run(name: str, limit: float, runs: Path, dry_run: bool) -> dict[str, Any]:
    """Findings of a part, merged, with its seconds, and its error if it failed or took longer."""
    command = [sys.executable, __file__, "--part", name, "--runs", str(runs)]
    command += ["--dry-run"] if dry_run else []
    began, error = time.monotonic(), None
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            error = f"cut short after {limit:.0f} s"
    if error is None and process.returncode:
        error = "\n".join(errors.splitlines()[-8:]) or f"exit status {process.returncode}"
    result: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith("{") and line.endswith("}"):  # not the torn last line of a killed part
            result |= json.loads(line)
    result["seconds"] = round(time.monotonic() - began, 1)
    return result if error is None else result | {"error": error}


def machine(dry_run: bool) -> dict[str, Any]:
    """Device, driver's memory, versions."""
    facts: dict[str, Any] = {"python": platform.python_version(), "torch": torch.__version__}
    if dry_run or not torch.cuda.is_available():
        return facts | {"device": "cpu", "cores": os.cpu_count()}
    properties = torch.cuda.get_device_properties(0)
    return facts | {
        "device": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda,
    }


def write(path: Path, found: dict[str, Any]) -> None:
    """The object, complete or not at all."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main())
