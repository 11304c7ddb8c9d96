"""Cost of several processes: the same steps by one process, and by several that share them.

    python benchmarks/ranks.py --size small
    python benchmarks/ranks.py --size small --ranks 2 --json

Each step is of the same batches: one process takes all of them, several take one each and talk
through gloo; each process has one thread.  They take turns (A B C, C B A), so that a ratio is of
neighbours in time; the table gives medians.  Where a machine is busy with other things,
CPU-seconds, of all processes, say more than the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from training_peers import transduce as ours
from workload import BATCH_TOKENS, LENGTHS, SIZES, Spent, batches, machine, median, timed

from transduce.tasks.translation.task import pair_loss
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks, process_group
from transduce.training.optimizer import build_optimizer
from transduce.training.sharding import Shards, is_enabled
from transduce.training.step import OptimizerStep

ONE, PARALLEL, SHARDED = "one process", "data parallel", "sharded"
RATE = 1e-4


@dataclass(frozen=True)
class Way:
    """A way to make a step over some batches; True if all ranks take part in it."""

    step: Callable[[int, Sequence[Any]], None]
    together: bool


def main(arguments: Sequence[str] | None = None) -> int:
    options = command_line().parse_args(arguments)
    if "RANK" in os.environ:
        measured(options)
        return 0
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    together = {"WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1"}
    together["MASTER_PORT"] = str(port)
    command = [sys.executable, __file__, *(sys.argv[1:] if arguments is None else arguments)]
    started = [
        subprocess.Popen(command, env={**os.environ, **together, "RANK": str(rank)})
        for rank in range(options.ranks)
    ]
    return max(abs(process.wait()) for process in started)


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", default="small", choices=SIZES)
    parser.add_argument("--ranks", type=int, default=2, help="processes")
    parser.add_argument("--rounds", type=int, default=8, help="steps of each way")
    parser.add_argument("--tokens", type=int, help="target positions in a batch")
    parser.add_argument("--json", action="store_true", help="one object instead of a table")
    return parser


def measured(options: argparse.Namespace) -> None:
    """By each rank; the first one prints."""
    torch.set_num_threads(1)
    with process_group() as ranks:
        tokens = options.tokens or BATCH_TOKENS[options.size]
        work = batches(LENGTHS["news"], tokens, ranks.world * options.rounds)
        ways = {name: way(name, options.size, ranks) for name in (ONE, PARALLEL, SHARDED)}
        prepare = ours(SIZES["tiny"]).prepare
        steps = [
            [prepare(batch) for batch in work[i : i + ranks.world]]
            for i in range(0, len(work), ranks.world)
        ]
        spent: dict[str, list[Spent]] = {name: [] for name in ways}
        for turn, batch in enumerate([steps[0], *steps]):  # the first step allocates
            for name in list(ways) if turn % 2 == 0 else reversed(list(ways)):
                ranks.barrier()
                took, _ = timed(lambda name=name, batch=batch: turned(ways[name], batch, ranks))
                [cpu] = ranks.all_reduce_sum(
                    took.cpu if ways[name].together or ranks.is_main else 0.0
                )
                if turn:
                    spent[name].append(Spent(took.wall, cpu))
        counts = [sum(batch.target_tokens for batch in step) for step in steps]
        if ranks.is_main:
            found = summary(spent, counts)
            print(json.dumps(found) if options.json else table(options, tokens, found))


def turned(way: Way, step: Sequence[Any], ranks: Ranks) -> None:
    """One step; all ranks are through with it."""
    count = sum(batch.target_tokens for batch in step)
    if way.together:
        way.step(count, [step[ranks.rank]])
    elif ranks.is_main:
        way.step(count, step)
    ranks.barrier()


def way(name: str, size: str, ranks: Ranks) -> Way:
    """A model of its own, and the step that `transduce train` makes of it."""
    torch.manual_seed(1)
    model = ours(SIZES[size]).model
    task = SimpleNamespace(
        model=model, loss=lambda batch: pair_loss(model, batch, 0.1, 0.0), describe=str
    )
    config = TrainingConfig(sharding="full" if name == SHARDED else "none")
    shards = Shards(task) if is_enabled(config) else None
    taking_part = Ranks() if name == ONE else ranks
    optimizer = build_optimizer(model, config)
    say = partial(print, file=sys.stderr)  # hints are no result
    step = OptimizerStep(task, config, optimizer, taking_part, say, shards)
    return Way(lambda count, part: step(1, part, RATE, count) and None, name != ONE)


def summary(spent: dict[str, list[Spent]], counts: Sequence[int]) -> dict[str, Any]:
    """Target tokens per second and per CPU-second, and their ratio to one process."""
    found = {}
    for name, steps in spent.items():
        pairs = list(zip(spent[ONE], steps, strict=True))
        found[name] = {
            "tokens_per_second": round(
                median([n / s.wall for n, s in zip(counts, steps, strict=True)])
            ),
            "times_as_fast": round(median([one.wall / each.wall for one, each in pairs]), 3),
            "times_per_cpu_second": round(median([one.cpu / each.cpu for one, each in pairs]), 3),
        }
    return found


def table(options: argparse.Namespace, tokens: int, found: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        f"{machine()}; {options.size}, {options.ranks} batches of {tokens} target positions a step",
        "",
        "| | tokens/s | times as fast | work per CPU-second |",
        "|-|-:|-:|-:|",
    ]
    for name, one in found.items():
        times = f"{one['times_as_fast']:.2f} | {one['times_per_cpu_second']:.2f}"
        lines.append(f"| {name} | {one['tokens_per_second']:,} | {times} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
