"""Measurement of the table that `transduce make` chooses by: candidates on sets of data.

    python benchmarks/make_table.py --data DIRECTORY --place /tmp/table --minutes 60

Every candidate of `making/table.json` is trained on each set below for the same CPU time on one
thread, and scored on a test set; a row is written into the table as soon as it is there, so the
command goes on where it was ended.  The number of steps comes from the CPU time of a few, so that
other work on the machine changes nothing.  --minutes: CPU minutes of this call, at most.

    python benchmarks/make_table.py --regret

prints the choice for each set without its own rows, the points by which it is behind the best, and
their mean by kind with its 95 % interval, by bootstrap over the sets.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import random
import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import transduce
from transduce.data.pairs import write_pairs
from transduce.making.data import facts_of
from transduce.making.plan import DataFacts, candidates, measured_table, ranked, recipe_of
from transduce.making.trials import METRICS, machine, tokens_of_a_step
from transduce.training.trainer import _Trainer

TABLE = Path(__file__).parents[1] / "src" / "transduce" / "making" / "table.json"
TESTED = 400
TIMED = 16
"""Steps that are timed."""
RESAMPLES = 2_000
Pair = tuple[str, str]


def lines(path: Path) -> Iterator[str]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    yield from text.removesuffix("\n").split("\n")


def parallel(directory: Path, source: str, target: str) -> list[Pair]:
    sides = (lines(directory / f"train.{code}.gz") for code in (source, target))
    return list(zip(*sides, strict=True))


def columns(path: Path, source: int, target: int, only: str = "") -> list[Pair]:
    rows = (line.split("\t") for line in lines(path))
    return [(row[source], row[target]) for row in rows if not only or only in row]


def inflected(path: Path, language: str) -> list[Pair]:
    rows = (line.split("\t") for line in lines(path))
    chosen = [row for row in rows if row[0] == language]
    return [
        (" ".join(f"<{tag}>" for tag in row[2].split(";")) + f" {row[1]}", row[3]) for row in chosen
    ]


def pairs_of(data: Path, name: str) -> list[Pair]:
    """All pairs of a set."""
    match name:
        case "tatoeba-fr-en" | "tatoeba-zh-en" | "software-de-en" | "tatoeba-de-en":
            return parallel(data / name, *name.split("-")[1:])
        case "multi30k":
            return parallel(data / name, "en", "de")
        case "cmudict":
            rows = columns(data / "cmudict-g2p" / "cmudict_stress.tsv.gz", 0, 1)
            return [pair for pair in rows if pair[0].isalpha()]
        case "g2p-fre":
            return columns(data / "sigmorphon2021-g2p" / "train.tsv.gz", 2, 3, "fre")
        case "inflection-fra":
            return inflected(data / "sigmorphon2023-inflection" / "train.tsv.gz", "fra")
        case "sst2":
            return columns(data / "sst2" / "train.tsv", 1, 0)
        case "trec":
            return columns(data / "trec-questions" / "train.tsv", 2, 0)
        case "hotel":
            return columns(data / "chnsenticorp-hotel" / "train.tsv.gz", 1, 0)
    raise SystemExit(f"no set {name}")


PLAN: list[tuple[str, str, int, float]] = [
    # kind, set, pairs, CPU seconds of a training
    ("classification", "trec", 4_500, 6),
    ("spelling", "cmudict", 10_000, 40),
    ("translation", "tatoeba-fr-en", 10_000, 30),
    ("classification", "sst2", 6_000, 10),
    ("translation", "software-de-en", 5_000, 30),
    ("classification", "hotel", 4_500, 20),
    ("translation", "multi30k", 25_000, 600),
    ("spelling", "inflection-fra", 5_000, 40),
    ("translation", "tatoeba-fr-en", 80_000, 180),
    ("spelling", "g2p-fre", 5_000, 40),
    ("translation", "tatoeba-zh-en", 5_000, 100),
    ("translation", "tatoeba-de-en", 40_000, 600),
    ("classification", "trec", 4_500, 60),
    ("spelling", "cmudict", 20_000, 240),
    ("translation", "software-de-en", 20_000, 300),
]


def cpu_of_a_step(recipe: dict[str, Any], run: Path) -> float:
    """CPU seconds of a step, the median of a training without its first steps."""
    seconds, step = [], _Trainer._step

    def timed(trainer: _Trainer, batches: Any) -> None:
        began = time.process_time()
        step(trainer, batches)
        seconds.append(time.process_time() - began)

    _Trainer._step = timed  # type: ignore[method-assign]
    try:
        transduce.train(recipe, run)
    finally:
        _Trainer._step = step  # type: ignore[method-assign]
    return statistics.median(seconds[3:])


def shuffled_pairs(pairs: list[Pair], count: int) -> list[Pair]:
    """Different pairs in a fixed random order: for both tests, and so many to train on."""
    different = list(dict.fromkeys(pairs))
    random.Random(1).shuffle(different)
    return different[: count + 2 * TESTED]


def written_splits(
    kind: Any, pairs: list[Pair], place: Path, prefix: str = ""
) -> tuple[DataFacts, dict[str, str]]:
    """Facts of the training pairs, and the paths of the splits.  prefix: of their names."""
    parts = {"test": pairs[:TESTED], "valid": pairs[TESTED : 2 * TESTED]}
    parts["train"] = pairs[2 * TESTED :]
    paths = {
        split: str(write_pairs(rows, place / f"{prefix}{split}.jsonl").resolve())
        for split, rows in parts.items()
    }
    return facts_of(parts["train"], kind), paths


def measure(kind: Any, pairs: list[Pair], candidate: str, seconds: float, place: Path) -> Any:
    """A row of the table, but for the work."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    facts, paths = written_splits(kind, pairs, place)
    settings = machine(kind, candidate) | {"threads": 1}
    timed = recipe_of(facts, candidate, TIMED, paths, {"steps": TIMED, **settings})
    timed["training"] |= {"validate_every": TIMED, "log_every": 4}
    if kind != "classification":
        timed["evaluation"] = {"validation_pairs": 0}
    pace = cpu_of_a_step(timed, place / "timed")
    tokens = tokens_of_a_step(place / "timed")
    steps = max(int(seconds / pace), 20)
    recipe = recipe_of(facts, candidate, steps, paths, {"steps": steps, **settings})
    run, outcome = transduce.train(recipe, place / "run")
    evaluation = transduce.load(run).evaluate("test")
    return {
        "candidate": candidate,
        "steps": outcome.step,
        "pace": round(pace, 4),
        "tokens_per_step": tokens,
        "score": round(float(evaluation.scores[METRICS[kind]]), 2),
        "epochs": round(tokens * steps / facts.target_tokens, 1),
    }


def regrets() -> None:
    """Print choices by the table without the rows of a set."""
    groups: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in measured_table()["measured"]:
        key = tuple(row[name] for name in ("kind", "set", "pairs", "seconds", "work"))
        groups.setdefault(key, {})[row["candidate"]] = row["score"]
    regrets_by_kind: dict[str, dict[str, list[float]]] = {}
    whole = {key: scores for key, scores in groups.items() if len(scores) > 1}
    for (kind, name, pairs, seconds, work), scores in whole.items():
        order = ranked(DataFacts(kind, pairs, 40.0, 40.0, 90), work, without=name)
        chosen = next(candidate for candidate, _ in order if candidate in scores)
        best = max(scores, key=lambda candidate: scores[candidate])
        regret = scores[best] - scores[chosen]
        regrets_by_kind.setdefault(kind, {}).setdefault(name, []).append(regret)
        print(f"{kind}, {name}, {pairs:,} pairs, {seconds} s: {chosen}; best {best}; {regret:.1f}")
    for kind, sets in regrets_by_kind.items():
        every = [regret for of_set in sets.values() for regret in of_set]
        low, high = interval_of_mean(list(sets.values()))
        print(
            f"{kind}: mean regret {statistics.mean(every):.1f} ({low:.1f} to {high:.1f}) "
            f"of {len(every)} groups, {len(sets)} sets"
        )


def interval_of_mean(sets: list[list[float]]) -> tuple[float, float]:
    """95 % interval of the mean of all values, by bootstrap over the sets."""
    chance = random.Random(1)
    means = [
        statistics.mean(itertools.chain.from_iterable(chance.choices(sets, k=len(sets))))
        for _ in range(RESAMPLES)
    ]
    low, *_, high = statistics.quantiles(means, n=40)
    return low, high


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--place", type=Path, default=Path("/tmp/table"))
    parser.add_argument("--regret", action="store_true")
    parser.add_argument("--minutes", type=float, default=60)
    arguments = parser.parse_args()
    if arguments.regret or arguments.data is None:
        regrets()
        return
    torch.set_num_threads(1)
    for kind, name, count, seconds in PLAN:
        pairs = shuffled_pairs(pairs_of(arguments.data, name), count)
        work = None
        for candidate in candidates(kind):  # type: ignore[arg-type]
            if candidate == "base":
                continue
            content = json.loads(TABLE.read_text(encoding="utf-8"))
            key = {"kind": kind, "set": name, "pairs": count, "seconds": seconds}
            before = [
                row
                for row in content["measured"]
                if row["candidate"] == candidate and all(row[k] == v for k, v in key.items())
            ]
            if before:
                work = work or before[0]["work"]
                continue
            if time.process_time() > 60 * arguments.minutes:
                return
            row = measure(kind, pairs, candidate, seconds, arguments.place)
            work = work or round(seconds / row["pace"] * row["tokens_per_step"])
            content = json.loads(TABLE.read_text(encoding="utf-8"))  # others may write too
            content["measured"].append(key | {"work": work} | row)
            TABLE.write_text(dumped(content), encoding="utf-8")
            print(json.dumps(content["measured"][-1]), flush=True)


def dumped(content: dict[str, Any]) -> str:
    """The table, a row a line."""
    kinds = []
    for kind, rows in content["candidates"].items():
        inner = ",\n".join(f"      {json.dumps(n)}: {json.dumps(row)}" for n, row in rows.items())
        kinds.append(f"    {json.dumps(kind)}: {{\n{inner}\n    }}")
    measured = ",\n".join(f"    {json.dumps(row)}" for row in content["measured"])
    head = ",\n".join(kinds)
    return f'{{\n  "candidates": {{\n{head}\n  }},\n  "measured": [\n{measured}\n  ]\n}}\n'


if __name__ == "__main__":
    main()
