"""Scaling of cost: of training with length, vocabulary, depth, and the size of a corpus, and with
the length of a single sentence, activations stored or recomputed; of decoding with the beam, the
length of the output, the batch, and the size of the model.

    python benchmarks/costs.py training
    python benchmarks/costs.py recompute
    python benchmarks/costs.py decoding

One variable changes at a time, the others are as in `--size tiny`; decoding has 32 sentences with a
beam of 4.  Each point is measured in its own process, as freed memory is not returned: CPU-seconds
per thousand target tokens, and peak memory of the process.  Writes the figures to
OUTPUT/training-costs.json (or another) and a plot beside it, which needs the extra `plot`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workload import (
    BATCH_TOKENS,
    LENGTHS,
    SIZES,
    Batch,
    machine,
    median,
    peak_memory,
    random_pairs,
    timed,
    training_flops,
)

TINY = SIZES["tiny"]
POSITIONS = BATCH_TOKENS["tiny"]
STEPS = 5
SENTENCES, BEAM = 32, 4
MIB = 2**20
POINTS: dict[str, dict[str, tuple[int, ...]]] = {
    "training": {
        "length": (16, 32, 64, 128, 256, 512, 1024, 2048),
        "vocabulary": (1000, 2000, 4000, 8000, 16_000, 32_000, 64_000),
        "depth": (1, 2, 4, 8, 16),
        "pairs": (10_000, 100_000, 1_000_000),
    },
    "recompute": {
        "kept": (2048, 4096, 8192),
        "again": (2048, 4096, 8192),
    },
    "decoding": {
        "beam": (1, 2, 4, 8, 16, 32),
        "output": (16, 64, 256, 1024, 4096),
        "batch": (1, 4, 16, 64, 256),
        "weights": tuple(range(len(SIZES))),
    },
}
LABELS = {
    "length": "tokens of a sentence, either side",
    "vocabulary": "tokens of the vocabulary",
    "depth": "layers of encoder and of decoder",
    "pairs": "pairs of the corpus (read and encoded)",
    "kept": "tokens of the only sentence, activations kept",
    "again": "tokens of the only sentence, activations computed again",
    "beam": "hypotheses of the beam",
    "output": "tokens of every output",
    "batch": "sentences decoded together",
    "weights": f"weights of the model ({', '.join(SIZES)})",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("of", nargs="?", default="training", choices=POINTS)
    parser.add_argument("--output", type=Path, default=Path("docs/performance"))
    parser.add_argument(
        "--draw", action="store_true", help="measure nothing, redraw from the figures"
    )
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.point:
        axis, value = options.point[0], int(options.point[1])
        print(json.dumps(measured(axis, value)))
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    figures = options.output / f"{options.of}-costs.json"
    if not options.draw:
        points = POINTS[options.of].items()
        found = {axis: [apart(axis, value) for value in values] for axis, values in points}
        record = {"machine": machine(), "points": found}
        figures.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    draw(json.loads(figures.read_text(encoding="utf-8")), figures.with_suffix(".svg"))
    return 0


def apart(axis: str, value: int) -> dict[str, Any]:
    """One point, in a process of its own with one thread."""
    command = [sys.executable, __file__, "--point", axis, str(value)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment
    ).stdout
    print(f"{axis} {value:,}: {done.strip()}", file=sys.stderr)
    point: dict[str, Any] = {"at": value, **json.loads(done)}
    return point


def measured(axis: str, value: int) -> dict[str, float]:
    """One point, in this process."""
    if axis == "pairs":
        return encoding(value)
    return decoding(axis, value) if axis in POINTS["decoding"] else training(axis, value)


def training(axis: str, value: int) -> dict[str, float]:
    """CPU-seconds for a thousand target tokens, in steps of one thread; peak memory."""
    import torch
    import training_peers
    import workload

    from transduce.training.recompute import recompute_layers

    torch.set_num_threads(1)
    alone = axis in POINTS["recompute"]
    length = value if axis == "length" or alone else LENGTHS["news"].mean
    size = TINY._replace(layers=value) if axis == "depth" else TINY
    if axis == "vocabulary":
        training_peers.VOCABULARY = workload.VOCABULARY = value
    chance = random.Random(1)

    def sentence() -> list[int]:
        return [chance.randrange(4, workload.VOCABULARY) for _ in range(round(length) - 1)]

    sentences = 1 if alone else POSITIONS // round(length)
    batch = Batch([(sentence(), sentence()) for _ in range(sentences)])
    peer = training_peers.transduce(size)
    if axis == "again":
        recompute_layers(peer.model)
    ready = peer.prepare(batch)
    peer.step(ready)  # the first allocates
    seconds = median([timed(lambda: peer.step(ready))[0].cpu for _ in range(STEPS)])
    return {
        "seconds": 1000 * seconds / batch.target_tokens,
        "mib": peak_memory() / MIB,
        "gflops": training_flops(size, batch) / seconds / 1e9,
    }


def decoding(axis: str, value: int) -> dict[str, float]:
    """CPU-seconds for a thousand tokens of the best hypotheses, with one thread; peak memory."""
    import torch
    from decoding_peers import Question, marian_shaped, pytorch

    from transduce.decoding.options import DecodingOptions

    torch.set_num_threads(1)
    size = list(SIZES.values())[value] if axis == "weights" else TINY
    sentences = value if axis == "batch" else SENTENCES
    asked = Question(
        beam=value if axis == "beam" else BEAM,
        length=value if axis == "output" else round(LENGTHS["news"].mean),
        options=DecodingOptions(),
    )
    model, _ = marian_shaped(size, seed=1)
    peer = pytorch(model)
    rows = [source for source, _ in random_pairs(sentences, LENGTHS["news"], seed=1)]
    peer(rows, Question(asked.beam, 2, asked.options))  # the first allocates
    long = axis == "output" and value > 1000
    spent = [timed(lambda: peer(rows, asked))[0].cpu for _ in range(1 if long else STEPS)]
    point = {
        "seconds": 1000 * median(spent) / (sentences * asked.length),
        "mib": peak_memory() / MIB,
    }
    if axis == "weights":
        point["at"] = sum(weights.numel() for weights in model.parameters())
    return point


def encoding(pairs: int) -> dict[str, float]:
    """CPU-seconds to read, cut and store a thousand pairs; peak memory."""
    from transduce.data.encoded import encode_pairs
    from transduce.data.filter_config import FilterConfig
    from transduce.data.rows import Side

    side = Side(lambda texts: [[int(word) for word in text.split()] for text in texts], 30_000)
    with tempfile.TemporaryDirectory() as directory:

        def encode() -> None:
            encode_pairs(texts(pairs), side, side, FilterConfig(), Path(directory), "costs")

        idle, _ = timed(lambda: sum(1 for _ in texts(pairs)))
        spent, _ = timed(encode)
    return {"seconds": 1000 * (spent.cpu - idle.cpu) / pairs, "mib": peak_memory() / MIB}


def texts(pairs: int) -> Iterator[tuple[str, str]]:
    """Lines of numbers, about as long as lines of news."""
    chance = random.Random(1)
    words = [str(chance.randrange(4, 30_000)) for _ in range(100_000)]
    for i in range(pairs):
        at, n = (i * 7919) % 99_000, 10 + i % 37
        yield " ".join(words[at : at + n]), " ".join(words[at + n : at + 2 * n])


def draw(record: dict[str, Any], path: Path) -> None:
    """Seconds on the left, memory on the right, of each thing that varies."""
    import matplotlib
    from matplotlib.figure import Figure

    rows = len(record["points"]) // 2
    figure = Figure(figsize=(9.6, 3.2 * rows), facecolor="white", layout="constrained")
    for axes, (axis, points) in zip(
        figure.subplots(rows, 2).flat, record["points"].items(), strict=True
    ):
        x = [point["at"] for point in points]
        axes.plot(x, [point["seconds"] for point in points], "o-", color="#0072b2")
        thing = "pairs" if axis == "pairs" else "target tokens"
        axes.set_ylabel(f"CPU-seconds for 1,000 {thing}", color="#0072b2")
        memory = axes.twinx()
        memory.plot(x, [point["mib"] for point in points], "s--", color="#d55e00")
        memory.set_ylabel("peak memory, MiB", color="#d55e00")
        axes.set_xscale("log", base=10 if axis in {"pairs", "weights"} else 2)
        axes.set_xticks(x, [f"{value:,}" for value in x], fontsize=7)
        axes.minorticks_off()
        axes.set_xlabel(LABELS[axis])
        for each in (axes, memory):
            each.set_ylim(0, 1.1 * max(line for line in each.lines[0].get_ydata()))
            each.spines[["top"]].set_visible(False)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "transduce"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(map(str.rstrip, lines)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
