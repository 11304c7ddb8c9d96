"""Decoding on a GPU against `transformers` and CTranslate2, and profiles of a step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import gpu_training
import torch
from decoding_peers import Peer, Question, ctranslate2, marian_shaped, transformers, translated
from gpu_work import Findings, Scale, against, counted_waits, seconds, speed
from torch.profiler import ProfilerActivity, profile
from workload import LENGTHS, batches, median, random_pairs

from transduce.decoding.options import DecodingOptions
from transduce.decoding.step_search import EncoderDecoderSearch, padded_ids

LENGTH = 32
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16}
ROWS = 25
"""Lines of a profile."""


def measure(
    scale: Scale, batches: tuple[int, ...], precisions: tuple[str, ...] = (*PRECISIONS,)
) -> Iterator[Findings]:
    """Tokens of the best outputs a second, each library on the same sentences, in turn."""
    result: Findings = {}
    peers = makers(scale, precisions)
    for size in batches:
        rows = [source for source, _ in random_pairs(min(size, scale.sentences), LENGTHS["news"])]
        for beam in (4, 1):
            asked = Question(beam, min(LENGTH, scale.longest), DecodingOptions())
            entry = result.setdefault(f"batch {size}, beam {beam}", {})
            for peer in peers.values():
                peer(rows, Question(beam, 4, DecodingOptions()))
            times: dict[str, list[float]] = {name: [] for name in peers}
            for _ in range(1 if size > 32 else scale.rounds):
                for name, peer in peers.items():
                    taken = seconds(scale.device, lambda peer=peer: peer(rows, asked))  # noqa: B023
                    times[name].append(taken)
                assert asked.length is not None
                count = len(rows) * asked.length
                entry |= {name: speed(count, taken) for name, taken in times.items()}
                for name, taken in times.items():
                    if name.startswith("transformers"):
                        ours = times[name.replace("transformers", "transduce")]
                        ratio = median([a / b for a, b in zip(taken, ours, strict=True)])
                        entry[f"ours to {name}"] = round(ratio, 2)
                if size == 512 and beam == 4:
                    figure = entry["transduce bf16"]
                    result["tokens_per_second"] = against(figure, 80_000, 150_000)
                yield result
    with counted_waits(scale.device) as places:
        peers[f"transduce {precisions[0]}"](rows, Question(4, 8, DecodingOptions()))
    yield {"waits_of_8_steps": {place: places.count(place) for place in sorted(set(places))}}


def makers(scale: Scale, precisions: tuple[str, ...]) -> dict[str, Peer]:
    """The libraries that are installed, with the same weights."""
    model, config = marian_shaped(scale.size("base"), 1)
    peers: dict[str, Peer] = {}
    for name in precisions:
        dtype = PRECISIONS[name]
        ours = copy.deepcopy(model).to(scale.device, dtype)
        peers[f"transduce {name}"] = translated(ours, EncoderDecoderSearch(ours, padded_ids))
        try:
            peers[f"transformers {name}"] = transformers(model, config, scale.device, dtype)
        except ImportError:
            continue
    try:
        if scale.device.type == "cuda":
            peers["ctranslate2 bf16"] = ctranslate2(model, config, "bfloat16", 1, "cuda")
    except (ImportError, RuntimeError, ValueError):
        pass  # its libraries of CUDA are seldom there
    return peers


def profiles(scale: Scale) -> Iterator[Findings]:
    """The operations of a training step and of eight decoding steps by their time, as text."""
    work = batches(LENGTHS["news"], scale.tokens["base"], 6)
    step, prepared = gpu_training.stepper(gpu_training.OURS, scale, "base", work)
    gpu_training.all_steps(step, prepared[:4])  # recorded from then on
    yield {"training": _table(scale, lambda: gpu_training.all_steps(step, prepared[4:]))}
    rows = [source for source, _ in random_pairs(min(32, scale.sentences), LENGTHS["news"])]
    model, _ = marian_shaped(scale.size("base"), 1)
    moved = model.to(scale.device)
    ours = translated(moved, EncoderDecoderSearch(moved, padded_ids))
    yield {"decoding": _table(scale, lambda: ours(rows, Question(4, 8, DecodingOptions())))}


def _table(scale: Scale, action: Callable[[], Any]) -> str:
    action()
    on_gpu = scale.device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    with profile(activities=activities) as seen:
        action()
    by = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    return str(seen.key_averages().table(sort_by=by, row_limit=ROWS, max_name_column_width=60))
