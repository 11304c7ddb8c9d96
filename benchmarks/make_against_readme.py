"""`transduce make` beside README's recipe on sets of which the table of make has no row.

    python benchmarks/make_against_readme.py --data DIRECTORY --place /tmp/readme --minutes 5

make has the minutes, by the clock; the recipe of README's "Your own pairs", or of the example that
README names for labels, then has as many steps as take the same CPU seconds on one thread.  The
score is of the official test; the interval of the difference is by paired bootstrap over its items.
Translations are read by make from a CSV of three columns: a number, the target, the source, with
Chinese headings.  A line of PLACE/rows.jsonl is written for each set; the same command goes on.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from make_table import TIMED, columns, cpu_of_a_step, lines

import transduce
from transduce.data.pairs import write_pairs
from transduce.making.data import Plan
from transduce.making.trials import METRICS
from transduce.metrics.measure import make_metric
from transduce.metrics.metric import paired_bootstrap
from transduce.settings.sections import merge_settings

ROOT = Path(__file__).parents[1]
Pair = tuple[str, str]
HEADINGS = "编号", "译文", "原文"
TRANSLATIONS = "enja", "captions"


def enja(data: Path, split: str) -> list[Pair]:
    sides = (lines(data / "small-parallel-enja" / f"{split}.{code}.gz") for code in ("en", "ja"))
    return list(zip(*sides, strict=True))


def captions(data: Path, split: str) -> list[Pair]:
    names = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
    sides = (lines(data / "multi30k" / f"{names[split]}.{code}.gz") for code in ("en", "fr"))
    return list(zip(*sides, strict=True))


def hungarian(data: Path, split: str) -> list[Pair]:
    rows = (line.split("\t") for line in lines(data / "sigmorphon2020-g2p" / f"{split}.tsv.gz"))
    return [(word, sounds) for language, word, sounds in rows if language == "hun"]


def reviews(data: Path, split: str) -> list[Pair]:
    return columns(data / "waimai-10k" / f"{split}.tsv.gz", 1, 0)


SETS: dict[str, Callable[[Path, str], list[Pair]]] = {
    "enja": enja,
    "captions": captions,
    "hungarian": hungarian,
    "waimai": reviews,
}


def written(name: str, pairs: list[Pair], place: Path) -> Path:
    """Training pairs as make reads them: translations as CSV with odd columns."""
    if name not in TRANSLATIONS:
        return write_pairs(pairs, place / "train.jsonl")
    path = place / "train.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(HEADINGS)
        rows.writerows((1000 + n, target, source) for n, (source, target) in enumerate(pairs))
    return path


def readme_recipe(is_labels: bool, paths: dict[str, str]) -> dict[str, Any]:
    """Recipe of README with these files, without its budget."""
    if is_labels:
        file = ROOT / "recipes" / "classification" / "sst2-transformer.toml"
        recipe = tomllib.loads(file.read_text(encoding="utf-8"))
        names = {"text": "source", "label": "target"}
    else:
        block = (ROOT / "README.md").read_text(encoding="utf-8").split("```toml\n")[1]
        recipe = tomllib.loads(block.split("```")[0])
        names = {}
        recipe["training"].pop("minutes")
        recipe.pop("languages")
    recipe["data"] = {
        split: {"kind": "jsonl", "path": path, **names} for split, path in paths.items()
    }
    return recipe


def by_readme(
    is_labels: bool, paths: dict[str, str], seconds: float, place: Path
) -> tuple[Path, float, int]:
    """A run of README's recipe after so many CPU seconds, about, with those spent and its steps."""
    recipe = readme_recipe(is_labels, paths)
    training = {"steps": TIMED, "validate_every": TIMED, "threads": 1, "device": "cpu"}
    pace = cpu_of_a_step(merge_settings(recipe, {"training": training}), place / "timed")
    steps = max(int(seconds / pace), TIMED)
    training |= {"steps": steps, "validate_every": max(steps // 5, 1)}
    began = time.process_time()
    run, _ = transduce.train(merge_settings(recipe, {"training": training}), place / "readme")
    return run, time.process_time() - began, steps


def compared(name: str, data: Path, place: Path, minutes: float) -> dict[str, Any]:
    """Scores of both on the test of a set."""
    place.mkdir(parents=True, exist_ok=True)
    splits = {split: SETS[name](data, split) for split in ("train", "dev", "test")}
    file = written(name, splits["train"] + splits["dev"], place)
    test = write_pairs(splits["test"], place / "test.jsonl")
    began = time.process_time()
    account = transduce.make(str(file), run=place / "made", minutes=minutes, test=[str(test)])
    made = time.process_time() - began
    plan = Plan.read(place / "made" / "made" / "plan.json")
    assert plan.prepared is not None
    kind = plan.prepared.facts.kind
    names = {"train": "train", "valid": "dev"}
    paths = {
        split: str(write_pairs(splits[part], place / f"readme-{split}.jsonl").resolve())
        for split, part in names.items()
    }
    run, spent, steps = by_readme(kind == "classification", paths, made, place)
    evaluations = [
        transduce.load(path, device="cpu").evaluate(examples=splits["test"])
        for path in (run, place / "made")
    ]
    outputs = [evaluation.hypotheses for evaluation in evaluations]
    result = paired_bootstrap(make_metric(METRICS[kind]), *outputs, evaluations[0].references)
    return {
        "set": name,
        "minutes": minutes,
        "candidate": plan.candidate,
        "columns": list(plan.prepared.columns),
        "spent": {"make": round(made, 1), "readme": round(spent, 1)},
        "steps": steps,
        "items": len(splits["test"]),
        "made": round(result.score_b, 2),
        "readme": round(result.score_a, 2),
        "difference": [round(x, 2) for x in (result.difference, result.low, result.high)],
        "account": dict(account.scores),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--place", type=Path, default=Path("/tmp/readme"))
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.place.mkdir(parents=True, exist_ok=True)
    path = arguments.place / "rows.jsonl"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    done = {json.loads(line)["set"] for line in text.splitlines()}
    for name in arguments.sets:
        if name not in done:
            row = compared(name, arguments.data, arguments.place / name, arguments.minutes)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
            print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
