"""Training by Marian itself (`pip install pymarian`) and by this package, one after the other.

Both train the recipe's model (post-norm, Marian's positions, a joint vocabulary) on its text with
its vocabulary, Adam and label smoothing, in batches of as many target tokens, on one thread:

    python benchmarks/marian_training.py RECIPE --marian OTHER/bin/python

OTHER is an environment with pymarian.  A training of few steps is taken from one of more, so that
neither preparation nor compilation counts.  Prints target tokens per CPU-second of each round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from transduce.recipes import read_recipe
from transduce.runs.exporting import export_run

MARIAN = "import sys, pymarian; pymarian.Trainer(' '.join(sys.argv[1:])).train()"
LABELS = re.compile(r"after ([\d,]+)")


def spent(command: list[str], log: Path) -> float:
    """CPU-seconds of a command, whose messages are written to a file."""
    before = getrusage(RUSAGE_CHILDREN)
    with log.open("wb") as out:
        subprocess.run(command, stdout=out, stderr=out, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ours(recipe: Path, run: Path, steps: int, precision: str) -> tuple[float, float]:
    """CPU-seconds and target tokens of so many steps, by the mean of a step."""
    settings = [f"training.steps={steps}", f"training.precision={precision}"]
    settings += ["training.validate_every=1000000", "training.threads=1", "training.log_every=10"]
    command = [sys.executable, "-m", "transduce", "train", str(recipe), "--run", str(run)]
    command += [part for setting in settings for part in ("--set", setting)]
    seconds = spent(command, run.with_suffix(".log"))
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(json.loads, lines) if record["kind"] == "train"]
    tokens = sum(
        after["tokens_per_second"] * (after["seconds"] - before["seconds"])
        for before, after in itertools.pairwise(records)
    )
    timed = records[-1]["step"] - records[0]["step"] if records else 0
    return seconds, tokens / max(timed, 1) * steps


def theirs(recipe: Any, model_file: Path, python: str, steps: int) -> tuple[float, float]:
    """CPU-seconds and target tokens of so many updates by Marian."""
    model, training = recipe.model, recipe.training
    directory = model_file.parent
    vocabulary = directory / "vocab.spm"
    options = {
        "type": "transformer",
        "model": model_file.with_suffix(".npz"),
        "train-sets": f"{directory / 'source'} {directory / 'target'}",
        "vocabs": f"{vocabulary} {vocabulary}",
        "dim-emb": model.d_model,
        "enc-depth": model.encoder.n_layers,
        "dec-depth": model.decoder.n_layers,
        "transformer-heads": model.encoder.n_heads,
        "transformer-dim-ffn": model.encoder.d_ff,
        "transformer-dropout": model.encoder.dropout,
        "label-smoothing": training.label_smoothing,
        "mini-batch": training.batch_tokens,
        "mini-batch-words": training.batch_tokens,
        "max-length": 200,
        "cpu-threads": 1,
        "after": f"{steps}u",
        "disp-freq": "1u",
        "workspace": 2000,
        "seed": 1,
    }
    command = [python, "-c", MARIAN, "--tied-embeddings-all", "--sync-sgd", "--overwrite"]
    for name, value in options.items():
        command += [f"--{name}", *str(value).split()]
    log = model_file.with_suffix(".log")
    seconds = spent(command, log)
    counts = LABELS.findall(log.read_text(encoding="utf-8", errors="replace"))
    return seconds, float(counts[-1].replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--marian", default=sys.executable, help="Python with pymarian")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, nargs=2, default=(20, 120))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        ours(arguments.recipe, folder / "first", 1, "float32")
        exported = export_run(folder / "first", folder / "out", form="bergamot")
        next(exported.glob("*.spm")).rename(folder / "vocab.spm")
        recipe = read_recipe(folder / "first")
        data = recipe.data
        for name in ("source", "target"):
            text = subprocess.run(
                ["zcat", "-f", str(Path(data.root, getattr(data.train, name)))],
                capture_output=True,
                check=True,
            )
            (folder / name).write_bytes(text.stdout)
        rates: dict[str, list[float]] = {"float32": [], "bf16": [], "Marian": []}
        for n in range(arguments.rounds):
            for kind, numbers in rates.items():
                few, many = (
                    theirs(recipe, folder / f"{kind}-{n}-{steps}", arguments.marian, steps)
                    if kind == "Marian"
                    else ours(arguments.recipe, folder / f"{kind}-{n}-{steps}", steps, kind)
                    for steps in arguments.steps
                )
                numbers.append((many[1] - few[1]) / (many[0] - few[0]))
    for kind, numbers in rates.items():
        print(f"{kind}: {', '.join(f'{rate:,.0f}' for rate in numbers)} tokens per CPU-second")
    medians = {kind: statistics.median(numbers) for kind, numbers in rates.items()}
    for kind in ("float32", "bf16"):
        print(f"{kind}: {medians[kind] / medians['Marian']:.2f} times Marian")


if __name__ == "__main__":
    main()
