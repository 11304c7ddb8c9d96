"""Speed of training, against other libraries on the same work in the same run.

    python benchmarks/training.py --size tiny
    python benchmarks/training.py --size tiny --json
    python benchmarks/training.py --pipeline

Every library, in a process of its own, trains a model of the same size on the same batches, turn by
turn (A B C, C B A), and each ratio is of two turns of one round; the table gives medians.
Each runs its matrix products in float32 and, where the processor has them faster, in bfloat16, and
is compared by the precision that it is faster in.  Tokens are real target tokens.  Peers that are
not installed are named and left out: pip install -r benchmarks/requirements.txt has them all.
`--pipeline` measures `transduce train` from text files against its bare steps, `--levers` our step
with one optimisation after the other removed.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
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
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}


@dataclass
class Measured:
    """Results of one library in each round: target tokens per second and per CPU-second, FLOP."""

    library: str
    precision: str
    parameters: int
    per_second: list[float] = field(default_factory=list)
    per_cpu_second: list[float] = field(default_factory=list)
    flops: list[float] = field(default_factory=list)
    """Per CPU-second."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = command_line().parse_args(arguments)
    torch.set_num_threads(options.threads)
    if options.pipeline:
        results = [training_pipeline.measure(size) for size in options.size.split(",")]
        tables = "\n".join(map(training_pipeline.table, results))
        print(json.dumps(results) if options.json else tables)
        return 0
    peaks = peaks_of(options.precision)
    summaries: dict[str, Any] = {}
    tables = [
        f"{machine()}; {options.threads} thread(s); matrix products in "
        + ", in ".join(f"{name} {peak / 1e9:.0f} GFLOP/s" for name, peak in peaks.items())
    ]
    for size in options.size.split(","):
        tokens = options.tokens or BATCH_TOKENS[size]
        work = batches(LENGTHS[options.lengths], tokens, options.batches)
        if options.levers:
            precision, *_ = peaks  # float32, unless another was asked for
            complete, *rest = measure(
                size, work, training_levers.VARIANTS, [precision], options.rounds
            )
            ratios = {variant.library: ratio(complete, variant) for variant in rest}
            summaries[size] = ratios
            tables.append(training_levers.table(size, ratios))
            continue
        others = [name for name in options.peers.split(",") if name != OURS]
        peers = {name: PEERS[name] for name in (OURS, *others)}
        measured = measure(size, work, peers, list(peaks), options.rounds, options.cold)
        summaries[size] = summary(measured, peaks)
        tables.append(table(size, tokens, options.lengths, work, measured, peaks))
    print(json.dumps(summaries) if options.json else "\n\n".join(tables))
    return 0


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", default="tiny,small,base", help="which of tiny, small and base")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each library")
    parser.add_argument("--rounds", type=int, default=8, help="steps that each library makes")
    parser.add_argument("--batches", type=int, default=8, help="different batches")
    parser.add_argument("--tokens", type=int, help="target positions in a batch")
    parser.add_argument("--cold", action="store_true", help="time batches of sizes not seen yet")
    parser.add_argument("--lengths", default="news", choices=LENGTHS, help="how long sentences are")
    parser.add_argument(
        "--precision", default="faster", choices=("faster", *DTYPES), help="of matrix products"
    )
    parser.add_argument("--peers", default=",".join(PEERS), help="libraries, separated by commas")
    parser.add_argument("--json", action="store_true", help="one object instead of a table")
    parser.add_argument("--pipeline", action="store_true", help="from text files, ours alone")
    parser.add_argument("--levers", action="store_true", help="what each way to be fast is worth")
    return parser


def peaks_of(precision: str) -> dict[str, float]:
    """The precisions to measure, and the best matrix product in each, FLOP per CPU-second."""
    if precision != "faster":
        return {precision: peak_flops(DTYPES[precision])}
    peaks = {name: peak_flops(dtype) for name, dtype in DTYPES.items()}
    return {name: peak for name, peak in peaks.items() if peak >= peaks["float32"]}


def measure(
    size: str,
    work: Sequence[Batch],
    builders: dict[str, Callable[[Size], Peer]],
    precisions: Sequence[str],
    rounds: int,
    cold: bool = False,
) -> list[Measured]:
    """All libraries that are there, in each precision, on the same batches, turn by turn.

    cold: most of the batches are new to each when it is timed.
    """
    with contextlib.ExitStack() as processes:
        contestants: list[tuple[Connection, Measured]] = []
        for (name, build), precision in itertools.product(builders.items(), precisions):
            connection = processes.enter_context(
                contestant(build, size, precision, work, 1 if cold else rounds)
            )
            parameters = connection.recv()
            if isinstance(parameters, ImportError):
                print(f"{name} left out: {parameters}", file=sys.stderr)
                continue
            contestants.append((connection, Measured(name, precision, parameters)))
        for turn in range(rounds):
            batch = work[turn % len(work)]
            for connection, record in contestants if turn % 2 == 0 else reversed(contestants):
                connection.send(turn % len(work))
                spent = connection.recv()
                record.per_second.append(batch.target_tokens / spent.wall)
                record.per_cpu_second.append(batch.target_tokens / spent.cpu)
                record.flops.append(training_flops(SIZES[size], batch) / spent.cpu)
            print(f"\r{size}: round {turn + 1} of {rounds}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return [record for _, record in contestants]


@contextlib.contextmanager
def contestant(
    build: Callable[[Size], Peer], size: str, precision: str, work: Sequence[Batch], untimed: int
) -> Iterator[Connection]:
    """A library in its own process, which answers `take_turns`.

    Changes that one makes to its process, such as keeping memory, then do not affect the others.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = (theirs, build, size, precision, work, untimed, torch.get_num_threads())
    process = context.Process(target=take_turns, args=arguments, daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.join()


def take_turns(
    asked: Connection,
    build: Callable[[Size], Peer],
    size: str,
    precision: str,
    work: Sequence[Batch],
    untimed: int,
    threads: int,
) -> None:
    """Send the number of parameters, or the name of a missing package; then, for each number of a
    batch, make a step and send its cost.  The first `untimed` steps are not timed."""
    warnings.filterwarnings("ignore", message="enable_nested_tensor")
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    try:
        peer = build(SIZES[size])
    except ImportError as error:
        asked.send(ImportError(str(error)))
        return

    def step(prepared: Any) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            peer.step(prepared)

    # The first step allocates, and in bfloat16 products are compiled for each number of rows.
    for batch in work[:untimed]:
        step(peer.prepare(batch))
    asked.send(sum(p.numel() for p in peer.model.parameters()))
    with contextlib.suppress(EOFError):  # nothing more is asked
        while True:
            prepared = peer.prepare(work[asked.recv()])
            spent, _ = timed(functools.partial(step, prepared))
            asked.send(spent)


def ratio(ours: Measured, peer: Measured) -> float:
    """Ratio of our tokens per CPU-second to a peer's, median over rounds."""
    pairs = zip(ours.per_cpu_second, peer.per_cpu_second, strict=True)
    return median([mine / theirs for mine, theirs in pairs])


def fastest(measured: Sequence[Measured]) -> Measured:
    """The one with the most tokens per CPU-second."""
    return max(measured, key=lambda one: median(one.per_cpu_second))


def summary(measured: Sequence[Measured], peaks: dict[str, float]) -> dict[str, Any]:
    """Ours against the best peer: each in its faster precision, then by precision."""
    result = against_best(measured, peaks)
    for precision in peaks if len(peaks) > 1 else ():
        alike = [one for one in measured if one.precision == precision]
        result[precision] = against_best(alike, peaks)
    return result


def against_best(measured: Sequence[Measured], peaks: dict[str, float]) -> dict[str, Any]:
    """Our fastest and, among these, the peer that it is least ahead of."""
    ours = fastest([one for one in measured if one.library == OURS])
    others = [one for one in measured if one.library != OURS]
    best = min(others, key=lambda peer: ratio(ours, peer), default=None)
    return {
        "ratio": round(ratio(ours, best), 3) if best else None,
        "peer": best.library if best else None,
        "peer_precision": best.precision if best else None,
        "precision": ours.precision,
        "tokens_per_cpu_second": round(median(ours.per_cpu_second)),
        "share_of_peak": round(median(ours.flops) / peaks[ours.precision], 3),
    }


def table(
    size: str,
    tokens: int,
    lengths: str,
    work: Sequence[Batch],
    measured: Sequence[Measured],
    peaks: dict[str, float],
) -> str:
    """Markdown."""
    padding = [batch.padding for batch in work]
    lines = [
        f"{size}: batches of {tokens} target positions, lengths as in {lengths}, padding "
        f"{median([p[0] for p in padding]):.0%} of the source, "
        f"{median([p[1] for p in padding]):.0%} of the target",
        "",
        "| library | precision | parameters | tokens/s | tokens/CPU-s | of peak | ours faster by |",
        "|-|-|-:|-:|-:|-:|-:|",
    ]
    ours = fastest([one for one in measured if one.library == OURS])
    for record in measured:
        times = "" if record.library == OURS else f"{ratio(ours, record):.2f} times"
        lines.append(
            f"| {record.library} | {record.precision} | {record.parameters:,} | "
            f"{median(record.per_second):,.0f} | {median(record.per_cpu_second):,.0f} | "
            f"{median(record.flops) / peaks[record.precision]:.0%} | {times} |"
        )
    if len(peaks) > 1:
        lines.append(f"\nOurs in {ours.precision} against each, whatever its precision.")
        for precision in peaks:
            result = against_best([one for one in measured if one.precision == precision], peaks)
            if result["peer"]:
                lines.append(f"All in {precision}: {result['ratio']} times {result['peer']}.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
