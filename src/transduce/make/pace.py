"""Speed of training on this machine."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transduce.make.plan import Facts, candidates, recipe_of
from transduce.nn.kernels.bf16 import slow_bf16_hint
from transduce.runs.training import train
from transduce.tasks.common import find_device
from transduce.training.curves import read_curves

TIMED_PAIRS, VALID_PAIRS = 2_000, 50
STEPS = 10, 40
"""Steps that are timed, in few seconds and in more than `SHORT_SECONDS`."""
SHORT_SECONDS = 10.0


def machine() -> dict[str, Any]:
    """Settings of training for this machine."""
    device = find_device("auto")
    if device.type != "cpu":
        return {}
    return {"threads": 1} | ({"precision": "bf16"} if slow_bf16_hint(device) else {})


def tokens_of_a_step(run: Path) -> int:
    """Target tokens of a step, from the log of a run."""
    before, last = read_curves(run).train[-2:]
    spent = float(last["seconds"] - before["seconds"]) * float(last["tokens_per_second"])
    return round(spent / int(last["step"] - before["step"]))


def tokens_per_second(
    facts: Facts,
    paths: Mapping[str, str],
    directory: Path,
    seconds: float,
) -> tuple[float, int]:
    """Target tokens a second, and those of a step, of the first candidate, by a short training.

    paths: of the splits; the first training pairs are used.  directory: to make and delete.
    seconds: to spend, about.
    """
    directory.mkdir(parents=True, exist_ok=True)
    splits = {}
    for split, most in (("train", TIMED_PAIRS), ("valid", VALID_PAIRS)):
        sample = directory / f"{split}.jsonl"
        with Path(paths[split]).open("rb") as file:
            sample.write_bytes(b"".join(itertools.islice(file, most)))
        splits[split] = str(sample.resolve())
    steps = STEPS[seconds > SHORT_SECONDS]
    timed = machine() | {"steps": steps}
    recipe = recipe_of(facts, candidates(facts.kind)[0], steps, splits, timed)
    recipe["training"] |= {"validate_every": steps, "log_every": 2}
    if "evaluation" in recipe:
        recipe["evaluation"] = {"validation_pairs": 0}
    run, _ = train(recipe, directory / "run", overwrite=True)
    rates = sorted(row["tokens_per_second"] for row in read_curves(run).train[1:])
    step_tokens = tokens_of_a_step(run)
    shutil.rmtree(directory)
    return float(rates[len(rates) // 2]), step_tokens
