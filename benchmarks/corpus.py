"""Preparation of a very large corpus, then a few steps of training on it.

    python benchmarks/corpus.py --pairs 2000000 --place /tmp/corpus PAIRS.tsv [MORE.tsv ...]

The corpus is derived from real pairs, by replacing a word on either side and by joining two, until
there are `--pairs` of them; it is streamed to the disk and deleted at the end.  Without files, the
pairs are the demo's: words and their sounds.

Prints one JSON object: speed of reading the files line by line; speed of preparation, from the
start of `transduce train` to the last encoded pair, vocabulary included; peak memory of the
process and its workers, in all and without shared pages (mostly the cache, which the system can
reclaim), the latter also at the first and the last step; seconds from the start to the first step,
without and with prepared data; and bytes on the disk.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tomli_w

from transduce.cli.demo import read_dictionary

MIB = 2**20
POLL_SECONDS = 0.05
VALID_PAIRS = 1000

Pair = tuple[str, str]


def real_pairs(files: Iterable[Path]) -> list[Pair]:
    """The first two columns of tab-separated files, or the demo's dictionary."""
    result = []
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            source, target, *_ = [*line.split("\t"), ""]
            if source.strip() and target.strip():
                result.append((source, target))
    return result or list(read_dictionary())


def varied(pairs: list[Pair], count: int) -> Iterator[Pair]:
    """So many pairs: first the real ones, then variations of them, the same at every call."""
    chance = random.Random(1)
    words = tuple([pair[side].split()[0] for pair in pairs] for side in (0, 1))
    yield from pairs[:count]
    for i in range(len(pairs), count):
        source, target = pairs[i % len(pairs)]
        if i % 4:
            yield _with_word(source, words[0], chance), _with_word(target, words[1], chance)
        else:
            other = pairs[int(chance.random() * len(pairs))]
            yield f"{source} {other[0]}", f"{target} {other[1]}"


def _with_word(text: str, words: list[str], chance: random.Random) -> str:
    parts = text.split()
    parts[int(chance.random() * len(parts))] = words[int(chance.random() * len(words))]
    return " ".join(parts)


def write_corpus(place: Path, pairs: list[Pair], count: int) -> None:
    """Two files, line by line."""
    with (
        (place / "corpus.source").open("w", encoding="utf-8") as source,
        (place / "corpus.target").open("w", encoding="utf-8") as target,
    ):
        for one, other in varied(pairs, count):
            source.write(one + "\n")
            target.write(other + "\n")
    for name, side in (("source", 0), ("target", 1)):
        text = "".join(pair[side] + "\n" for pair in pairs[:VALID_PAIRS])
        (place / f"valid.{name}").write_text(text, encoding="utf-8")


def write_recipe(place: Path, steps: int) -> Path:
    """A tiny model, which leaves the memory to the data."""
    layers = {"n_layers": 1, "n_heads": 2, "d_ff": 128}
    files = {"kind": "parallel", "source": "corpus.source", "target": "corpus.target"}
    valid = {"kind": "parallel", "source": "valid.source", "target": "valid.target"}
    recipe = {
        "task": "translation",
        "data": {"root": str(place), "train": files, "valid": valid},
        "text": {"source": {"kind": "bpe", "size": 8000}},
        "model": {"d_model": 64, "encoder": layers, "decoder": layers},
        "training": {"steps": steps, "validate_every": steps, "log_every": 1, "device": "cpu"},
        "evaluation": {"validation_pairs": 0},
    }
    path = place / "recipe.toml"
    path.write_text(tomli_w.dumps(recipe), encoding="utf-8")
    return path


def plain_read(place: Path) -> float:
    """Seconds to read both files line by line."""
    begin = time.perf_counter()
    for name in ("corpus.source", "corpus.target"):
        with (place / name).open(encoding="utf-8") as file:
            for _ in file:
                pass
    return time.perf_counter() - begin


def resident(process: int) -> tuple[float, float]:
    """MiB that a process holds: all, and without pages of files."""
    result = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("VmRSS", "RssAnon"):
                result[name] = int(value.split()[0]) / 1024
    return result.get("VmRSS", 0.0), result.get("RssAnon", 0.0)


def children(process: int) -> list[int]:
    """Processes that a process has started."""
    try:
        return [int(i) for path in Path(f"/proc/{process}/task").glob("*/children")
                for i in path.read_text().split()]  # fmt: skip
    except OSError:
        return []


def train(recipe: Path, run: Path) -> dict[str, Any]:
    """Figures of one run of the command."""
    peaks = {"main": 0.0, "main_own": 0.0, "worker": 0.0, "workers": 0.0, "all_own": 0.0}
    command = [sys.executable, "-m", "transduce", "train", str(recipe), "--run", str(run)]
    log, first_step, prepared = run.with_suffix(".log"), 0.0, 0.0
    in_steps: list[float] = []
    begin = time.perf_counter()
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors) as process,
    ):
        while process.poll() is None:
            main, own = resident(process.pid)
            workers = [resident(child) for child in children(process.pid)]
            now = {
                "main": main,
                "main_own": own,
                "worker": max((whole for whole, _ in workers), default=0.0),
                "workers": sum(whole for whole, _ in workers),
                "all_own": own + sum(part for _, part in workers),
            }
            peaks = {name: max(peak, now[name]) for name, peak in peaks.items()}
            if not prepared and "train: " in log.read_text():
                prepared = time.perf_counter() - begin
            if not first_step and (run / "metrics.jsonl").is_file():
                first_step = time.perf_counter() - begin
            if first_step and own:  # a process that has ended holds nothing
                in_steps.append(own)
            time.sleep(POLL_SECONDS)
    if process.returncode:
        raise SystemExit(log.read_text())
    said = next(line for line in log.read_text().splitlines() if line.startswith("train: "))
    return {
        "peak_mib": {name: round(peak) for name, peak in peaks.items()},
        "own_mib_from_first_to_last_step": [round(in_steps[0]), round(in_steps[-1])],
        "seconds_to_last_pair": round(prepared, 1),
        "seconds_to_first_step": round(first_step, 1),
        "seconds": round(time.perf_counter() - begin, 1),
        "said": said,
    }


def size_of(directory: Path) -> float:
    """MiB of all files in a directory."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()) / MIB


def measure(place: Path, files: list[Path], count: int, steps: int) -> dict[str, Any]:
    """All figures; temporary files stay in `place`."""
    pairs = real_pairs(files)
    write_corpus(place, pairs, count)
    read = plain_read(place)
    recipe = write_recipe(place, steps)
    cold = train(recipe, place / "runs" / "cold")
    warm = train(recipe, place / "runs" / "warm")
    return {
        "pairs": count,
        "real_pairs": len(pairs),
        "corpus_mib": round(sum(size for size in _sizes(place))),
        "plain_read_pairs_per_second": round(count / read),
        "prepared_pairs_per_second": round(count / cold["seconds_to_last_pair"]),
        "cache_mib": round(size_of(place / "runs" / ".cache")),
        "cold": cold,
        "warm": warm,
    }


def _sizes(place: Path) -> Iterator[float]:
    for name in ("corpus.source", "corpus.target"):
        yield (place / name).stat().st_size / MIB


def main() -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, help="tab-separated pairs")
    parser.add_argument("--pairs", type=int, default=2_000_000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--place", type=Path, default=Path("corpus"), help="is made and deleted")
    options = parser.parse_args()
    try:
        options.place.mkdir(parents=True)
    except FileExistsError:
        parser.error(f"{options.place} is there; --place is made, and deleted at the end")
    try:
        (options.place / "runs").mkdir()
        scores = measure(options.place.resolve(), options.files, options.pairs, options.steps)
    finally:
        shutil.rmtree(options.place)
    print(json.dumps(scores, indent=2))


if __name__ == "__main__":
    main()
