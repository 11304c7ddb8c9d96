"""Price of the tricks of speed-runs for small models: points of each at equal CPU time.

    python benchmarks/tricks.py --data DIRECTORY --place /tmp/tricks --minutes 60
    python benchmarks/tricks.py --place /tmp/tricks --table

Every trick below is trained on two tasks with two seeds, for the same CPU seconds on one thread
(--seconds each), as a training without any: the number of steps comes from the CPU time of a few,
beside those of a training without any in the same minute, so that other work on the machine changes
it little.  Tricks that a recipe has are settings, the others replace a part of the program here, so
that what does not help stays out of it.  A line of PLACE/tricks.jsonl is written as soon as it is
there, and the same command goes on.  --minutes: CPU minutes of this call, at most.  --tasks and
--tricks name those of this call.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple
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
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.nn.attention import MultiHeadAttention, SelfAttention
from transduce.nn.feed_forward import FeedForward, GatedFeedForward
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.masks import Mask
from transduce.nn.positions import Unpadding
from transduce.nn.state import KeyValue
from transduce.nn.transformer import DecoderLayer, EncoderLayer, _Stack
from transduce.sequence import Padded
from transduce.settings.sections import merge_settings
from transduce.training import loss
from transduce.training.trainer import _Trainer

Recipe = dict[str, Any]
ENGINE: Literal["pytorch"] = "pytorch"
"""Engine that decodes: the native one has none of the replacements."""
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
def value_embeddings() -> Iterator[None]:
    """Values of self-attention: v + c · E(token), of a table E for each side, at first zero, and a
    factor c for each layer, learnt from 1."""
    current: list[Tensor] = []
    embed, look_up = _Stack.embed, TextFrontEnd.forward
    initialise = encoder_decoder.initialise

    def initialised(model: EncoderDecoder, d_model: int, kind: Any) -> None:
        initialise(model, d_model, kind)
        for front_end in (model.front_end, model.target_front_end):
            front_end.values = nn.Embedding(*front_end.embedding.weight.shape)
            nn.init.zeros_(front_end.values.weight)
        for module in model.modules():
            if isinstance(module, SelfAttention):
                module.share = nn.Parameter(torch.ones(1))
                module.query_key_value.register_forward_hook(partial(added, module))

    def added(attention: SelfAttention, _: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return output + F.pad(attention.share * current[0], (2 * attention.width, 0))

    def looked_up(self: TextFrontEnd, tokens: Padded) -> Padded:
        current[:] = [self.values(tokens.values)]
        return look_up(self, tokens)

    def unpadded(self: _Stack, x: Padded, at: Tensor, bound: int, unpadding: Unpadding) -> Tensor:
        current[:] = [unpadding.unpad(current[0])]
        return embed(self, x, at, bound, unpadding)

    with (
        patch.object(encoder_decoder, "initialise", initialised),
        patch.object(TextFrontEnd, "forward", looked_up),
        patch.object(_Stack, "embed", unpadded),
    ):
        yield


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
    """Change of a recipe, or of the program.

    steps: of one without it, for the same batches.  is_free: True if a step costs what it does
    without, so that it is not timed.
    """

    changed: Callable[[Recipe], Mapping[str, Any]] = lambda recipe: {}
    replacement: Callable[[], AbstractContextManager[None]] = nullcontext
    steps: float = 1.0
    is_of: Callable[[Recipe], bool] = lambda recipe: True
    is_free: bool = False


def layers(encoder: int, decoder: int, width: float = 1.0) -> Callable[[Recipe], Recipe]:
    """Change of depths, and of the width by a factor."""

    def changed(recipe: Recipe) -> Recipe:
        model = recipe["model"]
        depths = {"encoder": {"n_layers": encoder}, "decoder": {"n_layers": decoder}}
        return {"model": {**depths, "d_model": int(width * model["d_model"])}}

    return changed


TRICKS: dict[str, Trick] = {
    "none": Trick(),
    "AdamW for Muon": Trick(lambda recipe: {"training": {"optimizer": {"kind": "adam"}}}),
    "zero outputs": Trick(replacement=zero_outputs, is_free=True),
    "QK-norm": Trick(replacement=normed_queries_and_keys),
    "no EMA": Trick(lambda recipe: {"training": {"ema": 0.0}}, is_free=True),
    "softcap of logits": Trick(replacement=capped_logits),
    "deep encoder, shallow decoder": Trick(layers(4, 1)),
    "value embeddings": Trick(replacement=value_embeddings),
    "mixed residuals": Trick(replacement=mixed_residuals),
    "growing batches": Trick(replacement=growing_batches, steps=0.75, is_free=True),
    "BPE-dropout": Trick(
        lambda recipe: {"text": {"source_sampling": 0.1, "target_sampling": 0.1}},
        is_of=lambda recipe: recipe["text"]["source"]["kind"] == "bpe",
    ),
    "deeper, narrower": Trick(layers(6, 4, 0.75)),
}
TASKS: tuple[tuple[Any, str, int, str], ...] = (
    ("translation", "multi30k", 25_000, "nano"),
    ("spelling", "cmudict", 20_000, "speller"),
)
SEEDS = 1, 2
ROUNDS = 2
"""Times that the steps of all tricks are timed."""


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


def costs_of_steps(facts: DataFacts, candidate: str, paths: Any, place: Path) -> dict[str, float]:
    """CPU seconds of a step with each trick: those of a step without, times the median ratio of
    both in the same round."""
    rounds: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        rounds.append({})
        for name, trick in TRICKS.items():
            timed = recipe_with(trick, facts, candidate, TIMED, paths, SEEDS[0])
            shutil.rmtree(place, ignore_errors=True)
            if trick.is_free:
                rounds[-1][name] = rounds[-1]["none"]
            elif trick.is_of(timed):
                with trick.replacement():
                    rounds[-1][name] = cpu_of_a_step(timed, place)
    plain = statistics.median(costs["none"] for costs in rounds)
    return {
        name: plain * statistics.median(costs[name] / costs["none"] for costs in rounds)
        for name in rounds[0]
    }


def measured(
    trick: Trick, facts: DataFacts, candidate: str, steps: int, paths: Any, seed: int, place: Path
) -> dict[str, Any]:
    """Scores of a trick after so many steps, and the CPU seconds of its training."""
    shutil.rmtree(place, ignore_errors=True)
    recipe = recipe_with(trick, facts, candidate, steps, paths, seed)
    with trick.replacement():
        began = time.process_time()
        run, outcome = transduce.train(recipe, place)
        spent = time.process_time() - began
        model = transduce.load(run, device="cpu", engine=ENGINE)
        scores = model.evaluate("test").scores
    return {
        "steps": steps,
        "spent": round(spent, 1),
        "loss": round(outcome.scores["loss"], 3),
        "score": round(scores[METRICS[facts.kind]], 2),
    }


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Measured rows; a line cut off at the end is measured again."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


KEY = "task", "trick", "seed", "seconds"


def key_of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def gains(rows: list[dict[str, Any]], key: tuple[Any, ...], name: str) -> list[float]:
    """Points of a trick beside none with each seed that both have.  key: task, trick, seconds."""
    task, trick, seconds = key
    values = {key_of(row): row[name] for row in rows}
    pairs = [[(task, either, seed, seconds) for either in (trick, "none")] for seed in SEEDS]
    return [values[a] - values[b] for a, b in pairs if a in values and b in values]


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Points and loss beside none: means over the seeds, and points by seed."""
    head = "task", "CPU seconds", "trick", "steps", "points", "by seed", "loss"
    lines = [f"| {' | '.join(head)} |", "|-|-:|-|-:|-:|-|-:|"]
    for task, seconds in sorted({(row["task"], row["seconds"]) for row in rows}):
        of_task = [row for row in rows if (row["task"], row["seconds"]) == (task, seconds)]
        for trick in TRICKS:
            steps = [row["steps"] for row in of_task if row["trick"] == trick]
            if not steps:
                continue
            cells = [task, f"{seconds:g}", trick, str(max(steps))]
            if trick == "none":
                cells += [of_none(of_task, "score", 1), "", of_none(of_task, "loss", 2)]
            elif points := gains(rows, (task, trick, seconds), "score"):
                losses = gains(rows, (task, trick, seconds), "loss")
                each = ", ".join(f"{point:+.1f}" for point in points)
                means = statistics.mean(points), statistics.mean(losses)
                cells += [f"{means[0]:+.1f}", each, f"{means[1]:+.2f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def of_none(rows: list[dict[str, Any]], name: str, digits: int) -> str:
    """Values of training without a trick, by seed."""
    values = [row[name] for row in rows if row["trick"] == "none"]
    return ", ".join(f"{value:.{digits}f}" for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--place", type=Path, default=Path("/tmp/tricks"))
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--tasks", nargs="+", default=[task[1] for task in TASKS])
    parser.add_argument("--tricks", nargs="+", choices=TRICKS, default=[*TRICKS])
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
    tasks = [
        (task, *prepared(arguments.data, task, arguments.place))
        for task in TASKS
        if task[1] in arguments.tasks
    ]
    costs = costs_of_tasks(tasks, arguments.place)
    for seed, name in itertools.product(SEEDS, arguments.tricks):
        trick = TRICKS[name]
        for task, facts, paths in tasks:
            key = dict(zip(KEY, (task[1], name, seed, arguments.seconds), strict=True))
            if key_of(key) in done or name not in costs[task[1]]:
                continue
            if time.process_time() > 60 * arguments.minutes:
                return
            steps = max(int(trick.steps * arguments.seconds / costs[task[1]][name]), TIMED)
            place = arguments.place / "training"
            result = measured(trick, facts, task[3], steps, paths, seed, place)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(key | result) + "\n")
            print(json.dumps(key | result), flush=True)


def costs_of_tasks(tasks: list[tuple[Any, DataFacts, Any]], place: Path) -> dict[str, Any]:
    """CPU seconds of a step by task and trick, measured once for all calls in `place`."""
    path = place / "costs.json"
    costs: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for task, facts, paths in tasks:
        if task[1] not in costs:
            costs[task[1]] = costs_of_steps(facts, task[3], paths, place / "timed")
            path.write_text(json.dumps(costs), encoding="utf-8")
    return costs


if __name__ == "__main__":
    main()
