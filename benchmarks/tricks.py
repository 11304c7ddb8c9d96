"""Price of the tricks of speed-runs for small models: points of each at equal CPU time.

    python benchmarks/tricks.py --data DIRECTORY --place /tmp/tricks --minutes 60
    python benchmarks/tricks.py --place /tmp/tricks --table

Every trick below is trained on two tasks with two seeds, for the same CPU seconds on one thread
(--seconds each), as a training without any: the number of steps comes from the CPU time of a few.
Tricks that a recipe has are settings, the others replace a part of the program here, so that what
does not help stays out of it.  A line of PLACE/tricks.jsonl is written as soon as it is there, and
the same command goes on.  --minutes: CPU minutes of this call, at most.  Value embeddings have
neither setting nor replacement.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from make_table import TIMED, cpu_of_a_step, pairs_of, shuffled_pairs, written_splits
from torch import Tensor, nn

import transduce
from transduce.making.plan import DataFacts, recipe_of
from transduce.making.trials import METRICS
from transduce.models import encoder_decoder
from transduce.nn.attention import MultiHeadAttention
from transduce.nn.feed_forward import FeedForward, GatedFeedForward
from transduce.nn.masks import Mask
from transduce.nn.state import KeyValue
from transduce.nn.transformer import DecoderLayer, EncoderLayer, _Stack
from transduce.settings.sections import merge_settings
from transduce.training import loss
from transduce.training.trainer import _Trainer

Recipe = dict[str, Any]
CAP = 15.0
"""Bound of capped logits."""


@contextmanager
def normed_queries_and_keys() -> Iterator[None]:
    """QK-norm (Henry et al. 2020): queries and keys divided by their root mean square."""
    plain = MultiHeadAttention.attend

    def attend(self: MultiHeadAttention, query: Tensor, memory: KeyValue, mask: Mask) -> Tensor:
        width = query.shape[-1:]
        keys = F.rms_norm(memory.key, width)
        return plain(self, F.rms_norm(query, width), memory._replace(key=keys), mask)

    with patch.object(MultiHeadAttention, "attend", attend):
        yield


@contextmanager
def capped_logits() -> Iterator[None]:
    """c · tanh(z / c) in place of logits z in the loss; greedy outputs are those of z."""
    plain = loss._cross_entropy_of_slice

    def capped(
        smoothing: float, passes: Tensor, targets: Tensor, scratch: Tensor | None, wanted: bool
    ) -> tuple[Tensor, Tensor]:
        bounded = passes.div_(CAP).tanh_()
        slope = 1 - bounded.square()
        sums = plain(smoothing, bounded.mul_(CAP), targets, scratch, wanted)
        passes.mul_(slope)
        return sums

    with patch.object(loss, "_cross_entropy_of_slice", capped):
        yield


@contextmanager
def zero_outputs() -> Iterator[None]:
    """Zeros as first weights of the last matrix of each sublayer."""
    plain = encoder_decoder.initialise

    def initialised(model: nn.Module, *rest: Any) -> None:
        plain(model, *rest)
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                nn.init.zeros_(module.output.weight)
            elif isinstance(module, FeedForward | GatedFeedForward):
                nn.init.zeros_(module.outer.weight)

    with patch.object(encoder_decoder, "initialise", initialised):
        yield


@contextmanager
def mixed_residuals() -> Iterator[None]:
    """Input of each layer: a · x + b · x₀, of the layer below and of the embeddings; both factors
    are learnt, from 1 and 0."""
    bottom: list[Tensor] = []
    embed = _Stack.embed

    def kept(self: _Stack, *inputs: Any) -> Tensor:
        bottom[:] = [embed(self, *inputs)]
        return bottom[0]

    def with_shares(plain: Callable[..., None]) -> Callable[..., None]:
        def init(self: nn.Module, *inputs: Any, **named: Any) -> None:
            plain(self, *inputs, **named)
            self.shares = nn.Parameter(torch.tensor([1.0, 0.0]))

        return init

    def mixing(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def forward(self: Any, x: Tensor, *rest: Any) -> Tensor:
            return plain(self, self.shares[0] * x + self.shares[1] * bottom[0], *rest)

        return forward

    with patch.object(_Stack, "embed", kept):
        layers: tuple[Any, ...] = (EncoderLayer, DecoderLayer)
        before = [(layer.__init__, layer.forward) for layer in layers]
        for layer, (init, forward) in zip(layers, before, strict=True):
            layer.__init__, layer.forward = with_shares(init), mixing(forward)
        try:
            yield
        finally:
            for layer, (init, forward) in zip(layers, before, strict=True):
                layer.__init__, layer.forward = init, forward


@contextmanager
def growing_batches() -> Iterator[None]:
    """Two batches in each step of the second half of the batches: 2/3 of the steps have one."""
    plain = _Trainer._step

    def step(self: _Trainer, batches: Any) -> None:
        plain(self, batches)
        if self.config.accumulate == 1 and 3 * self.progress.step >= 2 * self.config.steps:
            self.config = dataclasses.replace(self.config, accumulate=2)

    with patch.object(_Trainer, "_step", step):
        yield


class Trick(NamedTuple):
    """Change of a recipe, or of the program; steps: of one without it, for the same batches."""

    changed: Callable[[Recipe], Mapping[str, Any]] = lambda recipe: {}
    replacement: Callable[[], AbstractContextManager[None]] = nullcontext
    steps: float = 1.0
    is_of: Callable[[Recipe], bool] = lambda recipe: True


def layers(encoder: int, decoder: int, width: float = 1.0) -> Callable[[Recipe], Recipe]:
    """Change of depths, and of the width by a factor."""

    def changed(recipe: Recipe) -> Recipe:
        model = recipe["model"]
        depths = {"encoder": {"n_layers": encoder}, "decoder": {"n_layers": decoder}}
        return {"model": {**depths, "d_model": int(width * model["d_model"])}}

    return changed


TRICKS: dict[str, Trick] = {
    "none": Trick(),
    "QK-norm": Trick(replacement=normed_queries_and_keys),
    "softcap of logits": Trick(replacement=capped_logits),
    "zero outputs": Trick(replacement=zero_outputs),
    "mixed residuals": Trick(replacement=mixed_residuals),
    "growing batches": Trick(replacement=growing_batches, steps=0.75),
    "AdamW for Muon": Trick(lambda recipe: {"training": {"optimizer": {"kind": "adam"}}}),
    "no EMA": Trick(lambda recipe: {"training": {"ema": 0.0}}),
    "BPE-dropout": Trick(
        lambda recipe: {"text": {"source_sampling": 0.1, "target_sampling": 0.1}},
        is_of=lambda recipe: recipe["text"]["source"]["kind"] == "bpe",
    ),
    "deep encoder, shallow decoder": Trick(layers(4, 1)),
    "deeper, narrower": Trick(layers(6, 4, 0.75)),
}
TASKS: tuple[tuple[Any, str, int, str], ...] = (
    ("translation", "multi30k", 25_000, "nano"),
    ("spelling", "cmudict", 20_000, "speller"),
)
SEEDS = 1, 2


def recipe_with(
    trick: Trick, facts: DataFacts, candidate: str, steps: int, paths: Mapping[str, str], seed: int
) -> Recipe:
    """Recipe of a candidate with a trick: greedy, on one thread, with BPE for pieces."""
    recipe = recipe_of(facts, candidate, steps, paths, {"steps": steps, "threads": 1})
    plain = merge_settings(recipe, {"seed": seed, "decoding": {"beam_size": 1}})
    plain["training"]["validate_every"] = steps
    for side in plain["text"].values():
        side["kind"] = side["kind"].replace("unigram", "bpe")
    plain["evaluation"] = {"validation_pairs": 0}
    return merge_settings(plain, trick.changed(plain))


def prepared(data: Path, task: tuple[Any, str, int, str], place: Path) -> tuple[Any, Any]:
    """Facts of the training pairs, and the paths of the splits."""
    kind, name, count, _ = task
    place.mkdir(parents=True, exist_ok=True)
    return written_splits(kind, shuffled_pairs(pairs_of(data, name), count), place, f"{name}-")


def measured(
    trick: Trick,
    facts: DataFacts,
    candidate: str,
    paths: Any,
    seed: int,
    budget: float,
    place: Path,
) -> dict[str, Any]:
    """Steps and score of a trick within a budget in CPU seconds."""
    shutil.rmtree(place, ignore_errors=True)
    timed = recipe_with(trick, facts, candidate, TIMED, paths, seed)
    with trick.replacement():
        pace = cpu_of_a_step(timed, place / "timed")
        steps = max(int(trick.steps * budget / pace), TIMED)
        recipe = recipe_with(trick, facts, candidate, steps, paths, seed)
        run, _ = transduce.train(recipe, place / "run")
        scores = transduce.load(run, device="cpu").evaluate("test").scores
    return {"steps": steps, "pace": round(pace, 4), "score": round(scores[METRICS[facts.kind]], 2)}


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Measured rows; a line cut off at the end is measured again."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


KEY = "task", "trick", "seed", "seconds"


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Points beside none, the mean over the seeds that both have and each by itself."""
    lines = ["| task | CPU seconds | trick | points | by seed |", "|-|-:|-|-:|-|"]
    scores = {key_of(row): row["score"] for row in rows}
    for task, seconds in sorted({(row["task"], row["seconds"]) for row in rows}):
        for trick in TRICKS:
            pairs = [(task, trick, seed, seconds) for seed in SEEDS]
            gains = [
                scores[key] - scores[none]
                for key in pairs
                if key in scores and (none := (task, "none", *key[2:])) in scores
            ]
            if gains and trick != "none":
                each = ", ".join(f"{gain:+.1f}" for gain in gains)
                mean = statistics.mean(gains)
                lines.append(f"| {task} | {seconds:g} | {trick} | {mean:+.1f} | {each} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--place", type=Path, default=Path("/tmp/tricks"))
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    path = arguments.place / "tricks.jsonl"
    if arguments.table or arguments.data is None:
        print("\n".join(table(rows_of(path))))
        return
    torch.set_num_threads(1)
    rows = rows_of(path)
    arguments.place.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = {key_of(row) for row in rows}
    for seed in SEEDS:
        for task in TASKS:
            facts, paths = prepared(arguments.data, task, arguments.place)
            plain = recipe_with(TRICKS["none"], facts, task[3], TIMED, paths, seed)
            for name, trick in TRICKS.items():
                key = dict(zip(KEY, (task[1], name, seed, arguments.seconds), strict=True))
                if key_of(key) in done or not trick.is_of(plain):
                    continue
                if time.process_time() > 60 * arguments.minutes:
                    return
                place = arguments.place / "training"
                result = measured(trick, facts, task[3], paths, seed, arguments.seconds, place)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(key | result) + "\n")
                print(json.dumps(key | result), flush=True)


if __name__ == "__main__":
    main()
