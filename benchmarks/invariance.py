"""Batch invariance: count the lines with a translation that depends on other lines of the call.

    python benchmarks/invariance.py --run runs/tatoeba --lines test.zh.gz --beam 1,5

Every line is translated alone; then in batches of several sizes, by tokens, sorted and shuffled,
with two threads, and among neighbours of 10,000 characters.  Prints for each way the number of
lines with another text, the scores of both texts, and their distance in units of float32's last
place: rounding decides between two hypotheses that are so close.  `--precision float64` computes
everything in float64, to show the remaining differences.  With `--engine native` every score must
be the same.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

import transduce
from transduce.data.text_files import read_lines
from transduce.tasks.translation.text_translator import Translation

NO_LIMIT = 10**9
NEIGHBOUR_CHARACTERS = 10_000
NEIGHBOURS = 3
SHOWN = 5


class Way(NamedTuple):
    """A way to batch lines: number in a call, order, number of threads."""

    name: str
    batch: int
    tokens: int
    order: Sequence[int]
    threads: int = 1


def ways(lines: Sequence[str], batches: Sequence[str]) -> Iterator[Way]:
    """Every way to translate the lines, the first one alone."""
    n = len(lines)
    order = range(n)
    yield Way("alone", 1, NO_LIMIT, order)
    for size in batches:
        if size == "tokens":
            yield Way("tokens", n, 4096, order)
            yield Way("tokens, 2 threads", n, 4096, order, threads=2)
        elif size != "1":
            yield Way(f"batches of {size}", int(size), NO_LIMIT, order)
    by_length = sorted(order, key=lambda i: len(lines[i]))
    yield Way("sorted, batches of 64", 64, NO_LIMIT, by_length)
    shuffled = random.Random(0).sample(order, n)
    yield Way("shuffled, batches of 64", 64, NO_LIMIT, shuffled)


def translated(run: transduce.Run, lines: Sequence[str], way: Way, beam: int) -> list[Translation]:
    """The translations in the order of the lines, whatever the order of work."""
    torch.set_num_threads(way.threads)
    options = dataclasses.replace(
        run.translator.options, beam_size=beam, n_best=1, batch_tokens=way.tokens
    )
    result: dict[int, Translation] = {}
    rest = iter(way.order)
    while chunk := list(itertools.islice(rest, way.batch)):
        texts = [lines[i] for i in chunk]
        result.update(zip(chunk, run.translate_batch(texts, options), strict=True))
    torch.set_num_threads(1)
    return [result[i] for i in range(len(lines))]


def among_neighbours(run: transduce.Run, lines: Sequence[str], beam: int) -> list[Translation]:
    """The translations of the lines with texts of 10,000 characters spread among them."""
    joined = " ".join(lines)
    long = (joined * (NEIGHBOUR_CHARACTERS // len(joined) + 1))[:NEIGHBOUR_CHARACTERS]
    mixed, kept = [], []
    every = max(1, len(lines) // NEIGHBOURS)
    for i, line in enumerate(lines):
        if i % every == 0:
            mixed.append(long)
        kept.append(len(mixed))
        mixed.append(line)
    way = Way("neighbours", len(mixed), 4096, range(len(mixed)))
    result = translated(run, mixed, way, beam)
    return [result[i] for i in kept]


def differences(
    lines: Sequence[str], before: Sequence[Translation], after: Sequence[Translation]
) -> list[dict[str, Any]]:
    """The lines with another text than before, and how near the scores of both are."""
    result = []
    for i, (one, two) in enumerate(zip(before, after, strict=True)):
        if one.text != two.text:
            unit = max(abs(one.score), 1.0) * torch.finfo(torch.float32).eps
            result.append(
                {
                    "line": i + 1,
                    "source": lines[i],
                    "texts": [one.text, two.text],
                    "scores": [one.score, two.score],
                    "last_places": abs(one.score - two.score) / unit,
                }
            )
    return result


def measure(
    run: transduce.Run, lines: Sequence[str], beam: int, batches: Sequence[str]
) -> dict[str, Any]:
    """Changes by each way, by its name, and the seconds that it took."""
    result: dict[str, Any] = {}
    alone: list[Translation] = []
    for way in ways(lines, batches):
        begin = time.perf_counter()
        actual = translated(run, lines, way, beam)
        alone = alone or actual
        result[way.name] = _noted(lines, alone, actual, time.perf_counter() - begin)
    begin = time.perf_counter()
    actual = among_neighbours(run, lines, beam)
    name = f"among {NEIGHBOUR_CHARACTERS:,} characters"
    result[name] = _noted(lines, alone, actual, time.perf_counter() - begin)
    return result


def _noted(
    lines: Sequence[str], alone: Sequence[Translation], found: Sequence[Translation], seconds: float
) -> dict[str, Any]:
    pairs = zip(alone, found, strict=True)
    drift = max(abs(a.score - b.score) for a, b in pairs if a.text == b.text)
    return {
        "differ": differences(lines, alone, found),
        "largest_drift_of_a_score": drift,
        "seconds": seconds,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--beam", default="1,5")
    parser.add_argument("--batches", default="1,7,64,tokens")
    parser.add_argument("--most", type=int, default=1000, help="lines taken")
    widths = ("float32", "float64", "bf16", "int8")
    parser.add_argument("--precision", default="float32", choices=widths)
    parser.add_argument("--engine", default="pytorch", choices=("pytorch", "native"))
    parser.add_argument("--json", type=Path, help="file for all differences")
    given = parser.parse_args(arguments)
    lines = list(itertools.islice(read_lines(given.lines), given.most))
    torch.set_num_threads(1)
    wide = given.precision == "float64"
    run = transduce.load(given.run, "cpu", "float32" if wide else given.precision, given.engine)
    if wide:
        run.model.double()
    results = {}
    for beam in map(int, given.beam.split(",")):
        results[beam] = measure(run, lines, beam, given.batches.split(","))
        for name, result in results[beam].items():
            differ = result["differ"]
            print(
                f"beam {beam}  {name:28} {len(differ):4} of {len(lines)} differ; a score moved by "
                f"up to {result['largest_drift_of_a_score']:.1e}; {result['seconds']:.1f} s",
                flush=True,
            )
            for case in differ[:SHOWN]:
                print(f"    line {case['line']}: {case['scores']}, {case['last_places']:.1f} ulp")
    if given.json:
        text = json.dumps(results, ensure_ascii=False, indent=1)
        given.json.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
