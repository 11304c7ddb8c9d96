"""The trainer of pages beside PyTorch: tokens a CPU-second and errors at equal steps.

python benchmarks/learner.py DATA [--pairs 5000] [--longest 24] [--width 128] [--steps 200]
    [--first 1] [--seeds 1] [--optimizer muon]

DATA: gzipped TSV of words and sounds, such as CMUdict's published_split/train.tsv.gz, or `pinyin`
for the Chinese phrases of the demo.  Both start from the same weights and see the same batches
without dropout; PyTorch runs on one thread in float32, with ATEN_CPU_CAPABILITY as the caller sets
it.  Prints a line of JSON for each seed: tokens a CPU-second of both, losses of the last steps, and
the shares of wrong words and of wrong units among held-out words whose letters occur in training,
by greedy search.
"""

import argparse
import gzip
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.web import write_learner
from transduce.cli.demo import read_phrases
from transduce.metrics.error_rates import edit_distance
from transduce.models.config import EncoderDecoderConfig
from transduce.models.encoder_decoder import build_encoder_decoder
from transduce.nn.stack_configs import TransformerConfig
from transduce.sequence import Padded
from transduce.text import BOS, EOS
from transduce.training.config import AdamConfig, Cosine, MuonConfig, TrainingConfig, learning_rate
from transduce.training.loss import cross_entropy
from transduce.training.optimizer import build_optimizer
from transduce.training.weights import weights_of

STACK: dict[str, Any] = {"n_heads": 4, "positions": "rotary", "norm_order": "post"}
LAYERS = {"encoder": 3, "decoder": 2}
BATCH_TOKENS, HELD_OUT, WARMUP = 512, 1000, 40
Pairs = list[tuple[list[int], list[int]]]
PEAK = 2e-3
RUN = """
const { readFileSync } = require("fs");
const given = JSON.parse(readFileSync("case.json", "utf8"));
const modules = { relaxed: readFileSync("relaxed.wasm"), plain: readFileSync("plain.wasm") };
(async () => {
  const learner = await Learner.load(given.model, given.training, modules);
  learner.parameters.forEach(({ name }, k) => learner.view(k).set(given.weights[name]));
  const losses = [], steps = given.batches.length, began = process.cpuUsage();
  given.batches.forEach((batch, step) => {
    const { nll, count } = learner.pass(batch, { backward: true });
    losses.push(nll / count);
    learner.step(step / steps);
  });
  const { user, system } = process.cpuUsage(began);
  const written = [];
  for (let k = 0; k < given.test.length; k += 50)
    written.push(...learner.write(given.test.slice(k, k + 50), given.longest));
  process.stdout.write(JSON.stringify({ losses, seconds: (user + system) / 1e6, written }));
})();
"""


def read(data: str, seed: int, longest: int, count: int) -> tuple[Pairs, tuple[int, int]]:
    """Pairs of ids in random order, and the sizes of both vocabularies.  longest: letters and
    units of a pair, at most; count: of pairs, at most."""
    if data == "pinyin":
        rows = sorted(read_phrases())
    else:
        with gzip.open(data, "rt", encoding="utf-8") as file:
            rows = [tuple(line.rstrip("\n").split("\t")[:2]) for line in file]
    units = [(list(source), target.split()) for source, target in rows]
    units = [pair for pair in units if max(map(len, pair)) <= longest]
    random.Random(seed).shuffle(units)
    units = units[:count]
    lists = [sorted({unit for pair in units for unit in pair[side]}) for side in (0, 1)]
    ids = [{unit: k + 4 for k, unit in enumerate(each)} for each in lists]
    pairs = [([ids[0][u] for u in source], [ids[1][u] for u in target]) for source, target in units]
    return pairs, (len(lists[0]) + 4, len(lists[1]) + 4)


def batches_of(pairs: Pairs, count: int) -> list[dict[str, Any]]:
    """Batches of rows of about equal length, epoch after epoch."""
    made: list[Pairs] = [[]]
    for pair in sorted(pairs, key=lambda pair: max(map(len, pair))):
        if (len(made[-1]) + 1) * (max(map(len, pair)) + 1) > BATCH_TOKENS:
            made.append([])
        made[-1].append(pair)
    epochs = -(-count // len(made))
    order = [
        rows for epoch in range(epochs) for rows in random.Random(epoch).sample(made, len(made))
    ]
    return [
        {
            "sources": [[*source, EOS] for source, _ in rows],
            "inputs": [[BOS, *target] for _, target in rows],
            "targets": [[*target, EOS] for _, target in rows],
        }
        for rows in order[:count]
    ]


def written_by(model: nn.Module, sources: list[list[int]], longest: int) -> list[list[int]]:
    """Greedy outputs, as `Learner.write` has them."""
    rows, is_open = [[BOS] for _ in sources], [True] * len(sources)
    with torch.no_grad():
        for _ in range(longest):
            logits = model(Padded.from_rows(sources), Padded.from_rows(rows))[:, -1]
            logits[:, [0, BOS]] = -torch.inf
            for k, best in enumerate(logits.argmax(-1).tolist()):
                is_open[k] = is_open[k] and best != EOS
                rows[k].append(best if is_open[k] else EOS)
            if not any(is_open):
                break
    return [[i for i in row[1:] if i != EOS] for row in rows]


def measure(arguments: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Both trainings from one seed."""
    width, steps, kind = arguments.width, arguments.steps, arguments.optimizer
    longest = arguments.longest + 1
    count = HELD_OUT + arguments.pairs
    pairs, sizes = read(arguments.data, seed, arguments.longest, count)
    learnt = pairs[HELD_OUT:]
    letters = {letter for source, _ in learnt for letter in source}
    test = [pair for pair in pairs[:HELD_OUT] if letters.issuperset(pair[0])]
    batches = batches_of(learnt, steps)
    stack = {**STACK, "d_ff": 4 * width}
    stacks = {s: TransformerConfig(n_layers=n, dropout=0.0, **stack) for s, n in LAYERS.items()}
    torch.manual_seed(seed)
    config = EncoderDecoderConfig(d_model=width, tie="two-way", init="normal", **stacks)
    model = build_encoder_decoder(config, *sizes, joint=False)
    optimizer = MuonConfig() if kind == "muon" else AdamConfig()
    case = {
        "model": {
            "d_model": width,
            "tie": "two-way",
            "source_size": sizes[0],
            "target_size": sizes[1],
            **{side: {**stack, "n_layers": n} for side, n in LAYERS.items()},
        },
        "training": {
            "label_smoothing": 0.1,
            "clip_norm": 1.0,
            "optimizer": {"kind": kind},
            "schedule": {"peak": PEAK, "warmup_steps": WARMUP},
        },
        "weights": {name: w.flatten().tolist() for name, w in weights_of(model).items()},
        "batches": batches,
        "test": [[*source, EOS] for source, _ in test],
        "longest": longest,
    }
    with TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "case.json").write_text(json.dumps(case))
        (directory / "script.js").write_text(write_learner(directory) + RUN, encoding="utf-8")
        command = ["node", "script.js"]
        page = json.loads(
            subprocess.run(command, cwd=directory, capture_output=True, check=True).stdout
        )
    stepper = build_optimizer(model, TrainingConfig(optimizer=optimizer))
    losses, began = [], time.process_time()
    for step, batch in enumerate(batches):
        inputs = Padded.from_rows(batch["inputs"])
        hidden = model.advance(inputs, model.start(Padded.from_rows(batch["sources"])))
        wanted = torch.tensor([i for row in batch["targets"] for i in row])
        sums = cross_entropy(hidden.values[inputs.real], model.head.weight, wanted, 0.1)
        stepper.zero_grad()
        (sums.total / sums.tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in stepper.param_groups:
            schedule = Cosine(peak=PEAK, warmup_steps=WARMUP)
            group["lr"] = learning_rate(schedule, step + 1, step / steps, width)
        stepper.step()
        losses.append(float(sums.nll) / sums.tokens)
    seconds = time.process_time() - began
    sources = case["test"]
    groups = [sources[k : k + 50] for k in range(0, len(sources), 50)]
    outputs = [output for group in groups for output in written_by(model, group, longest)]
    tokens = sum(len(row) for batch in batches for row in batch["targets"])
    targets = [target for _, target in test]

    def wrong(written: list[list[int]]) -> tuple[float, float]:
        edits = [edit_distance(o, t) for o, t in zip(written, targets, strict=True)]
        return sum(map(bool, edits)) / len(test), sum(edits) / sum(map(len, targets))

    return {
        "seed": seed,
        "optimizer": kind,
        "steps": steps,
        "pairs": {"learnt": len(learnt), "held_out": len(test)},
        "parameters": sum(weights.numel() for weights in weights_of(model).values()),
        "tokens_per_cpu_second": {"pytorch": tokens / seconds, "page": tokens / page["seconds"]},
        "last_losses": {"pytorch": losses[-3:], "page": page["losses"][-3:]},
        "wrong_words_and_units": {"pytorch": wrong(outputs), "page": wrong(page["written"])},
    }


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("--pairs", type=int, default=5000)
    parser.add_argument("--longest", type=int, default=24)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--optimizer", choices=("adam", "muon"), default="muon")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        print(json.dumps(measure(arguments, seed)), flush=True)


if __name__ == "__main__":
    main()
