"""Small models of open tasks: score, bytes and CPU-minutes of entries that anybody can verify.

    python benchmarks/golf/golf.py verify ENTRY.toml --data DIRECTORY --place /tmp/golf
    python benchmarks/golf/golf.py table

An entry is a TOML file: `task`, `[recipe]` (a recipe without data), and `[claim]`.  verify reads
the data by sha256, trains the entry again on one thread, and compares score, bytes and the digest
of the weights with the claim: on the same kind of processor the digest must be equal, on others the
score must be within the 95 % interval of the test; the bytes may differ by 1 %, as the recipe among
them names the folder of the data.  Exit code: 0 if the claim holds, 1 if not, or for a mistake.
--claim writes the claim instead.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import platform
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))

import scan
import tomli_w
from safetensors.numpy import load_file

import transduce
from transduce.data.pairs import write_pairs
from transduce.errors import TransduceError

HERE = Path(__file__).parent
TASKS: dict[str, Any] = tomllib.loads((HERE / "tasks.toml").read_text(encoding="utf-8"))
KEPT = "recipe.toml", "weights.safetensors", "*tokenizer.json"
"""Files of a run that an answer needs."""

BYTES_SHARE = 0.01
"""Difference of bytes, at most: the recipe names the folder of the data."""

CLAIMED = {"score", "interval", "items", "bytes", "digest", "processor"}
"""Fields of a claim that `verify` compares."""


def read_entry(path: Path, has_claim: bool) -> dict[str, Any]:
    """The entry in a file; ends the program for one that cannot be verified."""
    try:
        entry = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SystemExit(
            f"golf: {path}: {error.strerror}; give the TOML file of an entry"
        ) from None
    except ValueError as error:
        raise SystemExit(f"golf: {path} is no TOML: {error}") from None
    if str(entry.get("task")) not in TASKS:
        raise SystemExit(f"golf: {path}: task is to be one of {', '.join(TASKS)}")
    for section in ("recipe", "claim") if has_claim else ("recipe",):
        if not isinstance(entry.get(section), dict):
            more = "; --claim writes it" if section == "claim" else ""
            raise SystemExit(f"golf: {path} has no [{section}]{more}")
    if has_claim and (missing := CLAIMED - entry["claim"].keys()):
        raise SystemExit(f"golf: {path}: the claim has no {min(missing)}; --claim writes it")
    return entry


def checked(data: Path, files: dict[str, str]) -> None:
    """End the program unless every file has its sha256."""
    for name, digest in files.items():
        path = data / name
        if not path.is_file():
            raise SystemExit(f"golf: {path} is not there; docs/data.md names its origin")
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise SystemExit(f"golf: {path} has another sha256 than tasks.toml")


def section_of_data(name: str, data: Path, place: Path) -> dict[str, Any]:
    """The `[data]` of a task: files of the folder, those of one language, or of the grammar."""
    task, root = TASKS[name], data
    checked(data, task["files"])
    if name.startswith("scan-"):
        root = place
        (place / name).mkdir(parents=True, exist_ok=True)
        for split, pairs in zip(("train", "test"), scan.split(name[5:]), strict=True):
            write_pairs(pairs, place / name / f"{split}.jsonl")
    elif language := task.get("language"):
        root = place / name
        for file in task["files"]:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            rows = gzip.decompress((data / file).read_bytes()).decode().splitlines()
            chosen = (row.split("\t", 1)[1] for row in rows if row.split("\t", 1)[0] == language)
            (root / file).write_bytes(gzip.compress("".join(f"{r}\n" for r in chosen).encode()))
    return {"root": str(root.resolve()), **task["data"]}


def processor() -> str:
    """Kind of processor, and the release of PyTorch, which decide the bits."""
    import torch

    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    ]
    instructions = torch.backends.cpu.get_cpu_capability()
    name = names[0] if names else platform.machine()
    return f"{name}, {instructions}, torch {torch.__version__}"


def digest_of(weights: Path) -> str:
    """Digest of names and values of all tensors."""
    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(weights).items()):
        digest.update(name.encode() + tensor.tobytes())
    return digest.hexdigest()


def measured(entry: dict[str, Any], data: Path, place: Path) -> dict[str, Any]:
    """Claim of an entry, as trained now: its score with the interval, bytes, CPU-minutes."""
    task = TASKS[entry["task"]]
    recipe = {**entry["recipe"], "task": "translation"}
    recipe["data"] = section_of_data(entry["task"], data, place) | recipe.get("data", {})
    recipe["evaluation"] = {"metrics": [task["metric"]], "validation_pairs": 0}
    recipe["training"] = {**recipe.get("training", {}), "threads": 1}
    began = time.process_time()
    run, _ = transduce.train(recipe, place / "run", overwrite=True)
    minutes = (time.process_time() - began) / 60
    evaluation = transduce.load(run, device="cpu").evaluate("test")
    low, high = evaluation.intervals()[task["metric"]]
    return {
        "metric": task["metric"],
        "score": round(evaluation.scores[task["metric"]], 2),
        "interval": [round(low, 2), round(high, 2)],
        "items": len(evaluation.sources),
        "bytes": sum(file.stat().st_size for form in KEPT for file in run.glob(form)),
        "cpu_minutes": round(minutes, 2),
        "digest": digest_of(run / "weights.safetensors"),
        "processor": processor(),
    }


def disagreements(claim: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Points in which a new training contradicts a claim."""
    wrong = []
    if now["processor"] == claim["processor"] and now["digest"] != claim["digest"]:
        wrong.append("other weights on the same kind of processor")
    low, high = claim["interval"]
    if not low <= now["score"] <= high:
        wrong.append(f"score {now['score']}, claimed {claim['score']} ({low} to {high})")
    if now["items"] != claim["items"]:
        wrong.append(f"{now['items']} test items, claimed {claim['items']}")
    if abs(now["bytes"] - claim["bytes"]) > BYTES_SHARE * claim["bytes"]:
        wrong.append(f"{now['bytes']:,} bytes, claimed {claim['bytes']:,}")
    return wrong


def verify(path: Path, data: Path, place: Path, claims: bool) -> int:
    """Train an entry again, and compare it with its claim, or write that."""
    entry = read_entry(path, has_claim=not claims)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"golf: --place {place}: {error.strerror}") from None
    try:
        now = measured(entry, data, place)
    except TransduceError as error:
        raise SystemExit(f"golf: {path}: {error}") from None
    if claims:
        path.write_text(tomli_w.dumps(entry | {"claim": now}), encoding="utf-8")
        return 0
    claim = entry["claim"]
    wrong = disagreements(claim, now)
    print(
        f"{path.stem}: {now['metric']} {now['score']}, {now['bytes']:,} bytes, "
        f"{now['cpu_minutes']} CPU-minutes; {'; '.join(comparison(claim, now))}; "
        + ("; ".join(wrong) or "the claim holds")
    )
    return 1 if wrong else 0


def comparison(claim: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Weights, score and bytes of a new training beside those of a claim."""
    same = "equal to the bit" if now["digest"] == claim["digest"] else "others"
    if now["processor"] != claim["processor"]:
        same += f" (here {now['processor']}; claimed on {claim['processor']})"
    low, high = claim["interval"]
    return [
        f"weights {same}",
        f"score claimed {claim['score']} ({low} to {high})",
        f"bytes claimed {claim['bytes']:,} ({100 * BYTES_SHARE:g} % allowed)",
    ]


def table() -> list[str]:
    """The entries by task, best first, with the published figures, as Markdown."""
    rows = ["| task | entry | score | bytes | CPU-minutes |", "|-|-|-:|-:|-:|"]
    entries = {
        path.stem: tomllib.loads(path.read_text(encoding="utf-8"))
        for path in sorted((HERE / "entries").glob("*.toml"))
    }
    for name, task in TASKS.items():
        metric = "WER" if task["metric"] == "wer" else task["metric"]
        found = [
            (entry["claim"]["score"], stem, entry["claim"])
            for stem, entry in entries.items()
            if entry["task"] == name
        ]
        lines = [
            (score, stem, f"{claim['bytes']:,}", str(claim["cpu_minutes"]))
            for score, stem, claim in found
        ]
        lines += [(row["score"], row["source"], "", "") for row in task["published"]]
        lines.sort(key=lambda row: row[0], reverse=not task.get("lower", False))
        for score, source, size, minutes in lines or [("", "none yet", "", "")]:
            rows.append(f"| {name}, {metric} | {source} | {score} | {size} | {minutes} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    again = verbs.add_parser("verify")
    again.add_argument("entry", type=Path)
    again.add_argument("--data", type=Path, required=True)
    again.add_argument("--place", type=Path, default=Path("/tmp/golf"))
    again.add_argument("--claim", action="store_true", help="write the claim")
    verbs.add_parser("table")
    arguments = parser.parse_args()
    if arguments.verb == "table":
        print("\n".join(table()))
        return 0
    return verify(arguments.entry, arguments.data, arguments.place, arguments.claim)


if __name__ == "__main__":
    raise SystemExit(main())
