"""Speed of decoding, against other engines with the same weights in the same run.

    python benchmarks/decoding.py --size base --batch 32 --beam 4
    python benchmarks/decoding.py --size tiny --batch 1 --beam 1 --latency
    python benchmarks/decoding.py --size base --batch 32 --beam 4 --json
    python benchmarks/decoding.py --run runs/zh-en --lines test.zh

Without a run the weights are random, in the shape of a Marian model, and every output has as many
tokens as the longest source of its batch.  With a run, its model decodes the lines and ends
the outputs.  Peers take turns (A B C, C B A), and each ratio is of two neighbours in time;
the table gives medians, and the share of outputs that equal PyTorch's in float32.  Tokens are
counted in the best hypotheses; a CPU-second is one second of one core, all threads counted.  Peers
that are not installed are named and left out.

With --json the object has an entry for each precision of the native engine: `ratio` to CTranslate2
in the same precision (bf16 to its float32), and `same_outputs`, the share of 200 further sentences
whose outputs equal PyTorch's in float32.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and "OMP_NUM_THREADS" not in os.environ:  # read when torch is loaded
    given = [word.partition("=")[::2] for word in sys.argv]
    at = next((i for i, (name, _) in enumerate(given) if name == "--threads"), None)
    threads = "1" if at is None else given[at][1] or sys.argv[at + 1 : at + 2][0]
    os.environ["OMP_NUM_THREADS"] = threads

import argparse
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import decoding_run
import torch
from decoding_peers import Peer, Question, ctranslate2, marian_shaped, native, pytorch, transformers
from workload import (
    LENGTHS,
    SIZES,
    VOCABULARY,
    machine,
    median,
    peak_memory,
    random_pairs,
    timed,
)

from transduce.decoding.options import DecodingOptions

P = TypeVar("P")

PRECISIONS = ("float32", "bf16", "int8")
LATENCIES = (50, 95, 99)
COMPARED = 200
"""Sentences whose outputs are compared, in batches of 32."""


@dataclass
class Measured:
    """Records of one peer in each round."""

    per_second: list[float] = field(default_factory=list)
    per_cpu_second: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    """Wall time of each batch."""
    outputs: list[list[int]] = field(default_factory=list)
    peak_mib: int | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    options = command_line().parse_args(arguments)
    torch.set_num_threads(options.threads)
    if options.run is not None:
        return decoding_run.main(options)
    wanted = options.peers.split(",")
    if options.memory_of:
        wanted = [options.memory_of]
    peers = make_peers(options, wanted)
    work = batches(options)
    if options.memory_of:
        for name, peer in peers.items():
            print(peak_mib(peer, work[-1], options.beam), name)
        return 0
    measured = measure(peers, work, lambda batch: question(batch, options.beam), options.rounds)
    if options.memory:
        for name, record in measured.items():
            record.peak_mib = in_a_process_of_its_own(name, options)
    if options.json:
        result = summary(measured)
        shares = same_as_pytorch(peers, options)
        for precision, entry in result.items():
            entry["same_outputs"] = shares.get(f"native {precision}")
        print(json.dumps(result))
    else:
        right = outputs_of_pytorch(options, work)
        print(f"{machine()}; {options.threads} thread(s)\n\n{table(options, measured, right)}")
    return 0


def command_line() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = parser.add_argument
    add("--size", default="base", choices=SIZES, help="of the random model")
    add("--vocabulary", type=int, default=VOCABULARY, help="tokens of the random model")
    add("--batch", type=int, default=32, help="sentences decoded together")
    add("--beam", type=int, default=4, help="beam size; 1 is greedy search")
    add("--length", type=int, help="tokens of every sentence; by default as in news, mean 28")
    add("--threads", type=int, default=1, help="CPU threads of each engine")
    add("--rounds", type=int, default=6, help="batches that each engine decodes")
    add("--seed", type=int, default=1, help="of weights and sentences")
    add("--peers", default=",".join(USUAL), help=f"engines, of {', '.join(MAKERS)}")
    add("--latency", action="store_true", help="add quantiles of the time of a batch")
    add("--memory", action="store_true", help="add peak memory, of a process for each engine")
    add("--memory-of", default="", help=argparse.SUPPRESS)
    add("--run", type=Path, help="a run directory of translation, instead of random weights")
    add("--lines", type=Path, help="with --run: source texts, one a line, plain or .gz")
    add("--count", type=int, default=512, help="with --run: lines of the file that are decoded")
    add("--json", action="store_true", help="one object instead of a table")
    return parser


MAKERS: dict[str, Callable[[Any, Any, int], Peer]] = {
    "native float32": lambda model, config, threads: native(model, config, "float32"),
    "native bf16": lambda model, config, threads: native(model, config, "bf16"),
    "native int8": lambda model, config, threads: native(model, config, "int8"),
    "pytorch float32": lambda model, config, threads: pytorch(model),
    "ctranslate2 float32": lambda model, config, n: ctranslate2(model, config, "float32", n),
    "ctranslate2 int8": lambda model, config, n: ctranslate2(model, config, "int8", n),
    "transformers float32": lambda model, config, threads: transformers(model, config),
}
USUAL = ("native float32", "native bf16", "native int8", "ctranslate2 float32", "ctranslate2 int8")


def make_peers(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Peer]:
    """The installed peers, all with the same weights."""
    model, config = marian_shaped(SIZES[options.size], options.seed, options.vocabulary)
    return installed(names, lambda name: MAKERS[name](model, config, options.threads))


def installed(names: Sequence[str], make: Callable[[str], P]) -> dict[str, P]:
    """The peers whose libraries are installed; the others are named on stderr."""
    peers = {}
    for name in names:
        try:
            peers[name] = make(name)
        except ImportError as error:
            print(f"{name} left out: {error}", file=sys.stderr)
    return peers


def batches(options: argparse.Namespace) -> list[list[list[int]]]:
    """Sources of like lengths together, one batch for each round, in random order."""
    n = options.batch * options.rounds
    sources = [source for source, _ in random_pairs(n, LENGTHS["news"], options.seed)]
    if options.length:
        sources = [(source * options.length)[: options.length] for source in sources]
    sources.sort(key=len)
    result = [sources[i : i + options.batch] for i in range(0, n, options.batch)]
    order = torch.randperm(len(result), generator=torch.Generator().manual_seed(options.seed))
    return [result[i] for i in order.tolist()]


def question(batch: list[list[int]], beam: int) -> Question:
    """As many tokens as the longest source has."""
    return Question(beam, max(map(len, batch)), DecodingOptions())


def measure(
    peers: dict[str, Callable[[Any, Any], list[list[int]]]],
    work: Sequence[list[list[int]]],
    question_of: Callable[[list[list[int]]], Any],
    rounds: int,
) -> dict[str, Measured]:
    """Every peer on the same batches, turn by turn; questions have the `length` of outputs."""
    result = {name: Measured() for name in peers}
    for peer in peers.values():  # the first call allocates
        peer(work[0], replace(question_of(work[0]), length=4))
    for turn, batch in enumerate(work):
        asked = question_of(batch)
        for name in list(peers) if turn % 2 == 0 else reversed(list(peers)):
            spent, outputs = timed(lambda name=name: peers[name](batch, asked))  # noqa: B023
            tokens = sum(map(len, outputs))
            assert {len(output) for output in outputs} == {asked.length}, name
            record = result[name]
            record.per_second.append(tokens / spent.wall)
            record.per_cpu_second.append(tokens / spent.cpu)
            record.milliseconds.append(1000 * spent.wall)
            record.outputs += outputs
        print(f"\rround {turn + 1} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return result


def peak_mib(peer: Peer, batch: list[list[int]], beam: int) -> int:
    """Most memory that this process ever had, after decoding a batch."""
    peer(batch, question(batch, beam))
    return peak_memory() >> 20


def in_a_process_of_its_own(name: str, options: argparse.Namespace) -> int:
    """Peak memory of a peer, in MiB: Python, PyTorch and the other weights included."""
    command = [sys.executable, __file__, "--memory-of", name]
    for setting in ("size", "vocabulary", "batch", "beam", "threads", "rounds", "seed"):
        command += [f"--{setting}", str(getattr(options, setting))]
    if options.length:
        command += ["--length", str(options.length)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(output.split()[0])


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Ratio of two speeds, median over rounds."""
    return median([mine / other for mine, other in zip(ours, theirs, strict=True)])


def same(ours: Sequence[list[int]], theirs: Sequence[list[int]]) -> float:
    """Share of outputs that are equal, token by token."""
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(theirs)


def outputs_of_pytorch(
    options: argparse.Namespace, work: Sequence[list[list[int]]]
) -> list[list[int]]:
    """Outputs of PyTorch in float32, with the same weights."""
    model, config = marian_shaped(SIZES[options.size], options.seed, options.vocabulary)
    peer = MAKERS["pytorch float32"](model, config, options.threads)
    return [row for batch in work for row in peer(batch, question(batch, options.beam))]


def same_as_pytorch(peers: dict[str, Peer], options: argparse.Namespace) -> dict[str, float]:
    """Share of outputs of each of our peers that are PyTorch's in float32, token by token."""
    pairs = random_pairs(COMPARED, LENGTHS["news"], options.seed + 1)
    sources = sorted((source for source, _ in pairs), key=len)
    work = [sources[i : i + 32] for i in range(0, COMPARED, 32)]

    def outputs(peer: Peer) -> list[list[int]]:
        return [row for batch in work for row in peer(batch, question(batch, options.beam))]

    right = outputs_of_pytorch(options, work)
    ours = {name: peer for name, peer in peers.items() if name.startswith("native")}
    return {name: same(outputs(peer), right) for name, peer in ours.items()}


def summary(measured: dict[str, Measured]) -> dict[str, Any]:
    """The native engine against CTranslate2, precision by precision."""
    result = {}
    for precision in PRECISIONS:
        ours = measured.get(f"native {precision}")
        theirs = measured.get(f"ctranslate2 {reference_of(precision)}")
        if ours is not None and theirs is not None:
            result[precision] = {
                "ratio": round(ratio(ours.per_cpu_second, theirs.per_cpu_second), 3),
                "wall_ratio": round(ratio(ours.per_second, theirs.per_second), 3),
                "same_as_ctranslate2": round(same(ours.outputs, theirs.outputs), 4),
                "tokens_per_cpu_second": round(median(ours.per_cpu_second), 1),
            }
    return result


def reference_of(precision: str) -> str:
    """Precision of CTranslate2 to compare with: it has bfloat16 on GPUs and few processors."""
    return "float32" if precision == "bf16" else precision


def table(
    options: argparse.Namespace, measured: dict[str, Measured], right: Sequence[list[int]]
) -> str:
    """Markdown.  right: outputs of PyTorch in float32."""
    columns = ["engine", "tokens/s", "tokens/CPU-s", "of CTranslate2", "as PyTorch float32"]
    columns += [f"p{p} ms" for p in LATENCIES] if options.latency else []
    columns += ["peak MiB"] if options.memory else []
    lines = [
        f"{options.size}, batch {options.batch}, beam {options.beam}, "
        f"{options.length or 'news'} tokens, {options.rounds} rounds",
        "",
        f"| {' | '.join(columns)} |",
        "|-|" + "-:|" * (len(columns) - 1),
    ]
    for name, record in measured.items():
        reference = measured.get(f"ctranslate2 {reference_of(name.split()[1])}")
        cells = [
            name,
            f"{median(record.per_second):,.0f}",
            f"{median(record.per_cpu_second):,.0f}",
            f"{ratio(record.per_cpu_second, reference.per_cpu_second):.2f}" if reference else "",
            f"{same(record.outputs, right):.0%}",
        ]
        if options.latency:
            times = torch.tensor(record.milliseconds)
            cells += [f"{torch.quantile(times, p / 100).item():.1f}" for p in LATENCIES]
        if options.memory:
            cells.append(f"{record.peak_mib:,}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
