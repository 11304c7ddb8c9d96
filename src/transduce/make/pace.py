"""Speed of training on this machine."""

from __future__ import annotations

import functools
import itertools
import shutil
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from transduce.make.plan import Facts, Kind, candidates, recipe_of, width_of
from transduce.nn.kernels.bf16 import slow_bf16_hint
from transduce.nn.kernels.threads import restored_threads
from transduce.runs.training import train
from transduce.support.work import available_cores
from transduce.tasks.common import find_device
from transduce.training.curves import read_curves

TIMED_PAIRS, VALID_PAIRS = 2_000, 50
STEPS = 10, 40
"""Steps that are timed, in few seconds and in more than `SHORT_SECONDS`."""
SHORT_SECONDS = 10.0
TOKENS, ROUNDS, WORTH = 512, 5, 0.7
"""Tokens and rounds in which one thread and all are timed, and the time of all, relative to one, up
to which they are used."""


@functools.cache
def machine(kind: Kind, candidate: str) -> dict[str, Any]:
    """Settings of training of a candidate for this machine: precision, and threads."""
    device = find_device("auto")
    if device.type != "cpu":
        return {}
    precision = {"precision": "bf16"} if slow_bf16_hint(device) else {}
    width = width_of(kind, candidate)
    layer = torch.nn.Linear(width, 4 * width)
    batch = torch.ones(TOKENS, width)
    counts = (1, available_cores())
    with restored_threads(), torch.autocast("cpu", torch.bfloat16, enabled=bool(precision)):
        rounds = [[_seconds(layer, batch, count) for count in counts] for _ in range(ROUNDS)]
    one, every = map(statistics.median, zip(*rounds, strict=True))
    return {"threads": counts[every < WORTH * one], **precision}


def _seconds(layer: torch.nn.Module, batch: torch.Tensor, threads: int) -> float:
    torch.set_num_threads(threads)
    began = time.perf_counter()
    layer(batch).sum().backward()
    return time.perf_counter() - began


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
) -> tuple[float, int, float]:
    """Target tokens a second, those of a step, and seconds beside the steps, of a short training of
    the first candidate.

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
    first = candidates(facts.kind)[0]
    timed = machine(facts.kind, first) | {"steps": steps}
    recipe = recipe_of(facts, first, steps, splits, timed)
    recipe["training"] |= {"validate_every": steps, "log_every": 2}
    if "evaluation" in recipe:
        recipe["evaluation"] = {"validation_pairs": 0}
    began = time.monotonic()
    run, _ = train(recipe, directory / "run", overwrite=True)
    whole = time.monotonic() - began
    rates = sorted(row["tokens_per_second"] for row in read_curves(run).train[1:])
    step_tokens = tokens_of_a_step(run)
    shutil.rmtree(directory)
    rate = float(rates[len(rates) // 2])
    return rate, step_tokens, max(whole - steps * step_tokens / max(rate, 1e-9), 0.0)
