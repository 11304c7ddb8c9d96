"""Training on a GPU against `transformers` and `torch.nn.Transformer`, in bfloat16."""

from __future__ import annotations

import functools
import json
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from gpu_work import Findings, Scale, counted_waits, peak_flops, peak_mib, seconds, speed
from torch import Tensor
from training_peers import PEERS, Peer
from workload import LENGTHS, Batch, batches, median, random_pairs, training_flops

import transduce

SHIPPED = Path(__file__).parents[1] / "recipes" / "translation" / "multi30k-en-de.toml"
SHIPPED_SECONDS = 20
RIVALS = ("transduce", "transformers", "torch.nn.Transformer")


def against_peers(scale: Scale, size: str) -> Iterator[Findings]:
    """Real target tokens a second of each library on the same batches, in turn.

    Also the share of the measured matrix peak, memory, and the waits of one of our steps.
    """
    warnings.filterwarnings("ignore", message="enable_nested_tensor")
    peak = peak_flops(scale)
    yield {"peak_tflops": round(peak / 1e12, 1)}
    work = batches(LENGTHS["news"], scale.tokens[size], scale.steps)
    count = sum(batch.target_tokens for batch in work)
    flops = sum(training_flops(scale.size(size), batch) for batch in work)
    steps: dict[str, Callable[[], None]] = {}
    result: Findings = {"target_tokens_of_a_step": count // len(work)}
    for name in RIVALS:
        try:
            peer = on_device(PEERS[name](scale.size(size)), scale.device)
        except ImportError as error:
            result[name] = {"left_out": str(error)}
            continue
        steps[name] = functools.partial(all_steps, peer, prepared(peer, work), scale.device)
        steps[name]()  # allocates, and chooses kernels for every shape
        result[name] = {"peak_mib": peak_mib(scale.device, steps[name])}
        yield result
    times: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(scale.rounds):
        for name in list(steps) if turn % 2 == 0 else reversed(list(steps)):
            times[name].append(seconds(scale.device, steps[name]))
        for name, taken in times.items():
            result[name]["tokens_per_second"] = speed(count, taken)
            result[name]["share_of_peak"] = round(flops / median(taken) / peak, 3)
            if name != RIVALS[0]:
                pairs = zip(taken, times[RIVALS[0]], strict=True)
                result[name]["ours_times_as_fast"] = round(median([a / b for a, b in pairs]), 2)
        yield result
    with counted_waits(scale.device) as places:
        steps[RIVALS[0]]()
    yield {"waits_of_our_steps": sorted(set(places)), "steps": len(work)}
    yield {"batches_as_they_come": as_they_come(scale, size, work)}


def as_they_come(scale: Scale, size: str, sorted_work: Sequence[Batch]) -> int:
    """Our tokens per second on pairs not sorted by length, for the cost of padding."""
    pairs = [pair for batch in sorted_work for pair in batch.pairs]
    each = max(1, len(pairs) // (2 * len(sorted_work)))  # wider batches: fewer rows fit
    mixed = [Batch(pairs[i :: len(pairs) // each or 1]) for i in range(len(sorted_work))]
    peer = on_device(PEERS[RIVALS[0]](scale.size(size)), scale.device)
    action = functools.partial(all_steps, peer, prepared(peer, mixed), scale.device)
    action()
    times = [seconds(scale.device, action) for _ in range(scale.rounds)]
    return speed(sum(batch.target_tokens for batch in mixed), times)


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
        budget = {"minutes": SHIPPED_SECONDS / 60, "log_every": 1, "validate_every": 10**6}
        settings["training"] |= {"device": scale.device.type, **budget, **scale.budget}
        settings["evaluation"]["validation_metrics"] = []
        for precision in ("bf16", "float32"):
            settings["training"]["precision"] = precision
            run = Path(directory) / precision
            transduce.train(settings, run)
            records = map(json.loads, (run / "metrics.jsonl").read_text("utf-8").splitlines())
            steps = [record for record in records if record["kind"] == "train"]
            speeds = sorted(record["tokens_per_second"] for record in steps)
            yield {
                precision: {
                    "steps": steps[-1]["step"],
                    "tokens_per_second_of_a_step": round(speeds[len(speeds) // 2]),
                }
            }


def compiled(scale: Scale) -> Iterator[Findings]:
    """Our base model with and without `training.compile`."""
    work = batches(LENGTHS["news"], scale.tokens["base"], scale.steps)
    count = sum(batch.target_tokens for batch in work)
    for name in ("eager", "compiled"):
        peer = on_device(PEERS[RIVALS[0]](scale.size("base")), scale.device)
        if name == "compiled":  # as `training.compile` does
            peer.model.encoder.compile(dynamic=True)
            peer.model.decoder.compile(dynamic=True)
        action = functools.partial(all_steps, peer, prepared(peer, work), scale.device)
        first = seconds(scale.device, action)
        times = [seconds(scale.device, action) for _ in range(scale.rounds)]
        yield {name: {"first_seconds": round(first, 1), "tokens_per_second": speed(count, times)}}


def on_device(peer: Peer, device: torch.device) -> Peer:
    """The same library with its weights there; its optimizer has the same parameters."""
    peer.model.to(device)
    return peer


def prepared(peer: Peer, work: Sequence[Batch]) -> list[Any]:
    """Batches in the library's format, on the CPU: copying is part of a step."""
    return [peer.prepare(batch) for batch in work]


def all_steps(peer: Peer, work: Sequence[Any], device: torch.device) -> None:
    """A step on each batch; losses are read at the end, all at once."""
    losses = []
    for batch in work:
        with torch.autocast(device.type, torch.bfloat16):
            losses.append(peer.step(there(batch, device)))
    assert bool(torch.stack(losses).isfinite().all())


def there(batch: Any, device: torch.device) -> Any:
    """A batch of ours or of a peer on the device."""
    if hasattr(batch, "to"):
        return batch.to(device)
    parts = (part.to(device) if isinstance(part, Tensor) else part for part in batch)
    return type(batch)(*parts)
