"""Training on a GPU against `transformers` and `torch.nn.Transformer`, in bfloat16."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import tempfile
import time
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from gpu_work import Findings, Scale, against, counted_waits, peak_flops, peak_mib, seconds, speed
from torch import Tensor
from training_peers import PEERS
from workload import (
    LABEL_SMOOTHING,
    LENGTHS,
    Batch,
    Size,
    batches,
    median,
    random_pairs,
    training_flops,
)

import transduce
from transduce.data.batches import OneShape
from transduce.tasks.translation.training import pair_loss
from transduce.training.config import TrainingConfig
from transduce.training.distributed import Ranks
from transduce.training.loss import LossSums
from transduce.training.optimizer import build_optimizer
from transduce.training.step import GraphedStep, OptimizerStep

SHIPPED = Path(__file__).parents[1] / "recipes" / "translation" / "multi30k-en-de.toml"
SHIPPED_SECONDS = 20
OURS = "transduce"
RIVALS = (OURS, "transduce, padded", "transformers", "torch.nn.Transformer")


def against_peers(scale: Scale, size: str) -> Iterator[Findings]:
    """Real target tokens a second of each library on the same batches, as they come.

    Batches are of like lengths and in random order, as a training has them: `first` is the speed
    where each is met for the first time, after a few others, `again` the speed of later passes.
    """
    warnings.filterwarnings("ignore", message="enable_nested_tensor")
    peak = peak_flops(scale)
    work = batches(LENGTHS["news"], scale.tokens[size], scale.steps)
    first_of_ours = 0.0
    yield {"peak_tflops": round(peak / 1e12, 1), "steps": scale.steps - scale.met}
    for name in RIVALS:
        try:
            first, result = passes(name, scale, size, work, peak)
        except ImportError as error:
            yield {name: {"left_out": str(error)}}
            continue
        if name == OURS and size == "base":
            yield {"share_of_peak": against(result["first_share_of_peak"], 0.30, 0.45)}
        first_of_ours = first_of_ours or first
        yield {name: result | {"ours_times_as_fast": round(first / first_of_ours, 2)}}
        if scale.device.type == "cuda":
            torch.cuda.empty_cache()


def passes(
    name: str, scale: Scale, size: str, work: Sequence[Batch], peak: float
) -> tuple[float, Findings]:
    """Seconds of a library's first pass over new batches, and its findings."""
    step, prepared = stepper(name, scale, size, work)
    all_steps(step, prepared[: scale.met])
    new = work[scale.met :]
    count = sum(batch.target_tokens for batch in new)
    flops = sum(training_flops(scale.size(size), batch) for batch in new)
    once = functools.partial(all_steps, step, prepared[scale.met :])
    taken: list[float] = []
    memory = peak_mib(scale.device, lambda: taken.append(seconds(scale.device, once)))
    again = [seconds(scale.device, once) for _ in range(scale.rounds)]
    with counted_waits(scale.device) as places:
        once()
    return taken[0], {
        "first_tokens_per_second": speed(count, taken),
        "again_tokens_per_second": speed(count, again),
        "first_share_of_peak": round(flops / taken[0] / peak, 3),
        "again_share_of_peak": round(flops / median(again) / peak, 3),
        "peak_mib": memory,
        "waits": {place: places.count(place) for place in sorted(set(places))},
    }


Step = Callable[[Any], Tensor | None]


def stepper(
    name: str, scale: Scale, size: str, work: Sequence[Batch], compiled: bool = False
) -> tuple[Step, list[Any]]:
    """A step of the library on one batch, and all batches in its format, on the CPU."""
    if name == OURS:
        task = OurTask(scale.size(size), scale.device, work)
        return task.stepper(compiled), [task.prepare(batch) for batch in work]
    peer = PEERS[name.split(",")[0]](scale.size(size))
    peer.model.to(scale.device)  # its optimizer has the same parameters

    def step(batch: Any) -> Tensor:
        with torch.autocast(scale.device.type, torch.bfloat16):
            return peer.step(there(batch, scale.device))

    return step, [peer.prepare(batch) for batch in work]


def all_steps(step: Step, work: Sequence[Any]) -> None:
    """A step on each batch; losses are read at the end, all at once."""
    losses = [loss for loss in map(step, work) if loss is not None]
    assert not losses or bool(torch.stack(losses).isfinite().all())


class OurTask:
    """The packed loss and the steps of a training on a GPU, without its data, log, checkpoints."""

    d_model, unit, waits = 0, "tokens", False

    def __init__(self, size: Size, device: torch.device, work: Sequence[Batch]) -> None:
        peer = PEERS["transduce"](size)
        self.model: Any = peer.model.to(device)
        self.prepare = peer.prepare
        pairs = [pair for batch in work for pair in batch.pairs]
        widths = [np.array([len(pair[side]) + 1 for pair in pairs]) for side in (0, 1)]
        most = max(self.prepare(batch).target.real.numel() for batch in work)
        sequences = max(len(batch.pairs) for batch in work)
        self.shape = OneShape([most, most], [int(width.max()) for width in widths], sequences)
        self.number = 0

    def pack(self, batch: Any) -> Any:
        """The pairs in two rows of one shape."""
        return batch.shifted().packed(self.shape)

    def packed_loss(self, pairs: Any) -> LossSums:
        """Loss of packed pairs."""
        return pair_loss(self.model, pairs, LABEL_SMOOTHING)

    def loss(self, batch: Any) -> LossSums:
        """Loss of padded pairs."""
        device = next(self.model.parameters()).device
        return pair_loss(self.model, batch.to(device), LABEL_SMOOTHING)

    def stepper(self, compiled: bool, kind: type[OptimizerStep] = GraphedStep) -> Step:
        """A step on a batch, as `transduce train` makes it; losses are read from `steps`."""
        config = TrainingConfig(precision="bf16", compile=compiled)
        options = (self, config, build_optimizer(self.model, config), Ranks.present(), str)
        self.steps = kind(*options, None, self)  # type: ignore[arg-type]

        def step(batch: Any) -> None:
            self.number += 1
            self.steps(self.number, [batch], 1e-4, batch.target_tokens)

        return step


def shipped(scale: Scale) -> Iterator[Findings]:
    """A recipe of this repository on random pairs, batches as they come, first sight included."""
    with tempfile.TemporaryDirectory() as directory:
        data = Path(directory) / "pairs.tsv"
        pairs = random_pairs(scale.pairs, LENGTHS["captions"])
        lines = ("\t".join(" ".join(map(str, side)) for side in pair) for pair in pairs)
        data.write_text("\n".join(lines) + "\n", encoding="utf-8")
        settings = tomllib.loads(SHIPPED.read_text(encoding="utf-8"))
        part = {"kind": "tsv", "path": str(data)}
        settings["data"] = {"train": part, "valid": part}
        settings["text"] = {"source": {"kind": "symbols"}}
        budget = {"minutes": SHIPPED_SECONDS / 60, "log_every": 20, "validate_every": 10**6}
        settings["training"] |= {"device": scale.device.type, **budget, **scale.budget}
        settings["training"]["precision"] = "bf16"
        settings["evaluation"]["validation_metrics"] = []
        run = Path(directory) / "run"
        began = time.perf_counter()
        transduce.train(settings, run)
        took = time.perf_counter() - began
        records = map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines())
        logged = [record for record in records if record["kind"] == "train"]
        steps_per_second = [
            (b["step"] - a["step"]) / (b["seconds"] - a["seconds"])
            for a, b in itertools.pairwise(logged)
        ]
        yield {
            "seconds_of_the_command": round(took, 1),
            "steps": logged[-1]["step"],
            "seconds_of_these": round(logged[-1]["seconds"], 1),
            "steps_per_second": [round(n, 1) for n in steps_per_second],
            "tokens_per_second": round(median([record["tokens_per_second"] for record in logged])),
        }


def compiled(scale: Scale) -> Iterator[Findings]:
    """Our base model with `training.compile`: seconds until it runs, and its speed.

    A CPU would spend minutes in its own compiler: there the step is traced only, whole and once.
    """
    trace = functools.partial(torch.compile, backend="aot_eager")
    on_gpu = scale.device.type == "cuda"
    with contextlib.nullcontext() if on_gpu else mock.patch.object(torch, "compile", trace):
        yield from compiled_steps(scale)


def compiled_steps(scale: Scale) -> Iterator[Findings]:
    """Seconds of the first steps, and speed of the others."""
    work = batches(LENGTHS["news"], scale.tokens["base"], scale.steps)
    new = work[scale.met :]
    step, prepared = stepper(OURS, scale, "base", work, compiled=True)
    took = seconds(scale.device, lambda: all_steps(step, prepared[: scale.met]))
    yield {"first_seconds": round(took, 1)}
    count = sum(batch.target_tokens for batch in new)
    times = [
        seconds(scale.device, lambda: all_steps(step, prepared[scale.met :]))
        for _ in range(scale.rounds)
    ]
    peak = peak_flops(scale)
    flops = sum(training_flops(scale.size("base"), batch) for batch in new)
    yield {
        "first_tokens_per_second": speed(count, times[:1]),
        "again_tokens_per_second": speed(count, times),
        "share_of_peak": round(flops / median(times) / peak, 3),
    }


def there(batch: Any, device: torch.device) -> Any:
    """A batch of ours or of a peer on the device."""
    if hasattr(batch, "to"):
        return batch.to(device)
    parts = (part.to(device) if isinstance(part, Tensor) else part for part in batch)
    return type(batch)(*parts)
