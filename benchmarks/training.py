"""How fast training is, against other libraries on the same work in the same run.

    python benchmarks/training.py --size tiny
    python benchmarks/training.py --size tiny --json
    python benchmarks/training.py --pipeline

Every library trains a model of the same size on the same batches, turn by turn (A B C, C B A), and
each ratio is that of two neighbours in time; the table gives medians.  Tokens are real target
tokens.  Peers that are not installed are named and left out: pip install -r
benchmarks/requirements.txt has them all.  `--pipeline` measures `transduce train` from text files
against its bare steps, `--levers` our step with one way to be fast after the other taken away.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import training_levers
import training_pipeline
from training_peers import PEERS, Peer
from workload import (
    BATCH_TOKENS,
    LENGTHS,
    SIZES,
    Batch,
    Size,
    batches,
    machine,
    median,
    peak_flops,
    timed,
    training_flops,
)

OURS = "transduce"


@dataclass
class Measured:
    """What one library did in each round: target tokens per second and per CPU-second, FLOP."""

    parameters: int
    per_second: list[float] = field(default_factory=list)
    per_cpu_second: list[float] = field(default_factory=list)
    flops: list[float] = field(default_factory=list)
    """Per CPU-second."""
    loss: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = command_line().parse_args(arguments)
    warnings.filterwarnings("ignore", message="enable_nested_tensor")
    torch.set_num_threads(options.threads)
    if options.pipeline:
        results = [training_pipeline.measure(size) for size in options.size.split(",")]
        tables = "\n".join(map(training_pipeline.table, results))
        print(json.dumps(results) if options.json else tables)
        return 0
    peak = peak_flops()
    summaries: dict[str, Any] = {}
    tables = [
        f"{machine()}; {options.threads} thread(s); {options.precision}; "
        f"matrix products in float32 {peak / 1e9:.0f} GFLOP/s"
    ]
    for size in options.size.split(","):
        tokens = options.tokens or BATCH_TOKENS[size]
        work = batches(LENGTHS[options.lengths], tokens, options.batches)
        if options.levers:
            variants = measure(size, work, training_levers.VARIANTS, options)
            complete = variants.pop("nothing")
            ratios = {name: ratio(complete, variant) for name, variant in variants.items()}
            summaries[size] = ratios
            tables.append(training_levers.table(size, ratios))
            continue
        others = [name for name in options.peers.split(",") if name != OURS]
        peers = {name: PEERS[name] for name in (OURS, *others)}
        measured = measure(size, work, peers, options)
        summaries[size] = summary(measured, peak)
        tables.append(table(size, tokens, options.lengths, work, measured, peak))
    print(json.dumps(summaries) if options.json else "\n\n".join(tables))
    return 0


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", default="tiny,small,base", help="which of tiny, small and base")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each library")
    parser.add_argument("--rounds", type=int, default=8, help="steps that each library makes")
    parser.add_argument("--batches", type=int, default=8, help="different batches")
    parser.add_argument("--tokens", type=int, help="target positions in a batch")
    parser.add_argument("--lengths", default="news", choices=LENGTHS, help="how long sentences are")
    parser.add_argument(
        "--precision", default="float32", choices=("float32", "bf16"), help="of matrix products"
    )
    parser.add_argument("--peers", default=",".join(PEERS), help="libraries, separated by commas")
    parser.add_argument("--json", action="store_true", help="one object instead of a table")
    parser.add_argument("--pipeline", action="store_true", help="from text files, ours alone")
    parser.add_argument("--levers", action="store_true", help="what each way to be fast is worth")
    return parser


def measure(
    size: str,
    work: Sequence[Batch],
    builders: dict[str, Callable[[Size], Peer]],
    options: argparse.Namespace,
) -> dict[str, Measured]:
    """All libraries that are there, on the same batches, turn by turn."""
    rounds: int = options.rounds
    narrow = options.precision == "bf16"

    def step(peer: Peer, ready: Any) -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            return peer.step(ready)

    peers: dict[str, Peer] = {}
    for name, build in builders.items():
        try:
            torch.manual_seed(1)
            peer = build(SIZES[size])
        except ImportError as error:
            print(f"{name} left out: {error}", file=sys.stderr)
            continue
        step(peer, peer.prepare(work[0]))  # the first step allocates
        peers[name] = peer
    found = {
        name: Measured(sum(p.numel() for p in peer.model.parameters()))
        for name, peer in peers.items()
    }
    for turn in range(rounds):
        batch = work[turn % len(work)]
        for name in list(peers) if turn % 2 == 0 else reversed(list(peers)):
            peer, record = peers[name], found[name]
            prepared = peer.prepare(batch)
            spent, record.loss = timed(lambda peer=peer, ready=prepared: step(peer, ready))
            record.per_second.append(batch.target_tokens / spent.wall)
            record.per_cpu_second.append(batch.target_tokens / spent.cpu)
            record.flops.append(training_flops(SIZES[size], batch) / spent.cpu)
        print(f"\r{size}: round {turn + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def ratio(ours: Measured, peer: Measured) -> float:
    """How many times as many tokens per CPU-second we train, median over rounds."""
    pairs = zip(ours.per_cpu_second, peer.per_cpu_second, strict=True)
    return median([mine / theirs for mine, theirs in pairs])


def summary(measured: dict[str, Measured], peak: float) -> dict[str, Any]:
    """Ours against the best peer."""
    ours = measured[OURS]
    ratios = {name: ratio(ours, peer) for name, peer in measured.items() if name != OURS}
    best = min(ratios, key=ratios.__getitem__) if ratios else None
    return {
        "ratio": round(ratios[best], 3) if best else None,
        "peer": best,
        "tokens_per_cpu_second": round(median(ours.per_cpu_second)),
        "share_of_peak": round(median(ours.flops) / peak, 3),
    }


def table(
    size: str,
    tokens: int,
    lengths: str,
    work: Sequence[Batch],
    measured: dict[str, Measured],
    peak: float,
) -> str:
    """Markdown."""
    padding = [batch.padding for batch in work]
    lines = [
        f"{size}: batches of {tokens} target positions, lengths as in {lengths}, padding "
        f"{median([p[0] for p in padding]):.0%} of the source, "
        f"{median([p[1] for p in padding]):.0%} of the target",
        "",
        "| library | parameters | tokens/s | tokens/CPU-s | of peak | ours is faster by |",
        "|-|-:|-:|-:|-:|-:|",
    ]
    for name, record in measured.items():
        times = "" if name == OURS else f"{ratio(measured[OURS], record):.2f} times"
        lines.append(
            f"| {name} | {record.parameters:,} | {median(record.per_second):,.0f} | "
            f"{median(record.per_cpu_second):,.0f} | {median(record.flops) / peak:.0%} | {times} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
