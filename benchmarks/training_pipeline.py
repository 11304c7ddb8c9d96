"""Training from text files, against its bare steps.

Measures the share of reading, tokenizing, sorting, batching, logging and validation in `transduce
train`.  Two trainings that differ in their number of steps alone give the cost of a step without
work done once; an earlier training has prepared the data.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from training_peers import transduce as ours
from workload import BATCH_TOKENS, LENGTHS, SIZES, VOCABULARY, Pair, random_pairs, timed

import transduce
from transduce.data.batches import pair_batches
from transduce.data.encoded import encode_pairs
from transduce.data.pairs import FilterConfig
from transduce.data.ragged_rows import Side

PAIRS = 20_000
STEPS = (10, 50)


def measure(size: str) -> dict[str, Any]:
    """CPU-seconds of a thousand target tokens: in `transduce train`, and in bare steps."""
    pairs = random_pairs(PAIRS, LENGTHS["news"])
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for side, file in enumerate(("source.txt", "target.txt")):
            lines = (" ".join(f"w{i}" for i in pair[side]) for pair in pairs)
            (directory / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
        _train(directory, size, 1)  # learns the vocabulary and encodes, which the others find done
        spent = [_train(directory, size, steps) for steps in STEPS]
    whole = 1000 * (spent[1][0] - spent[0][0]) / (spent[1][1] - spent[0][1])
    bare, loading = _bare(size, pairs)
    return {
        "size": size,
        "whole": whole,
        "steps": bare,
        "loading": loading,
        "loading_share": loading / bare,
        "overhead": whole / bare - 1,
    }


def _train(directory: Path, size: str, steps: int) -> tuple[float, int]:
    """CPU-seconds of a whole training, and the target tokens that it saw."""
    width = SIZES[size]
    stack = {
        "n_layers": width.layers,
        "n_heads": width.heads,
        "d_ff": width.inner,
        "norm_order": "pre",
    }
    files = {"kind": "parallel", "source": "source.txt", "target": "target.txt"}
    recipe = {
        "task": "translation",
        "data": {"root": str(directory), "train": files, "hold_out": 0.005},
        "text": {"source": {"kind": "symbols"}},
        "model": {"d_model": width.width, "encoder": stack, "decoder": stack},
        "training": {
            "steps": steps,
            "batch_tokens": BATCH_TOKENS[size],
            "validate_every": 1_000_000,
            "log_every": 10,
            "threads": torch.get_num_threads(),
            "device": "cpu",
        },
        "evaluation": {"validation_pairs": 0},
    }
    spent, (run, _) = timed(lambda: transduce.train(recipe, directory / f"run-{steps}"))
    return spent.cpu, _tokens_seen(run)


def _tokens_seen(run: Path) -> int:
    newest = max((run / "checkpoints").iterdir())
    return int(json.loads((newest / "progress.json").read_text(encoding="utf-8"))["target_tokens"])


def _bare(size: str, pairs: Sequence[Pair]) -> tuple[float, float]:
    """CPU-seconds of a thousand target tokens: steps on batches that are ready; making these."""
    with tempfile.TemporaryDirectory() as directory:
        side = Side(
            lambda texts: [[int(word) for word in text.split()] for text in texts], VOCABULARY
        )
        texts = [
            (" ".join(map(str, source)), " ".join(map(str, target))) for source, target in pairs
        ]
        encoded = encode_pairs(texts, side, side, FilterConfig(), Path(directory), "benchmark")
        batches = pair_batches(encoded, BATCH_TOKENS[size], 1).iterate()
        making, ready = timed(lambda: [batch for batch, _ in itertools.islice(batches, STEPS[1])])
        peer = ours(SIZES[size])
        for batch in ready[: STEPS[0]]:
            peer.step(batch)
        stepping, _ = timed(lambda: [peer.step(batch) for batch in ready[STEPS[0] :]])
    stepped = sum(batch.target_tokens for batch in ready[STEPS[0] :])
    made = sum(batch.target_tokens for batch in ready)
    return 1000 * stepping.cpu / stepped, 1000 * making.cpu / made


def table(measured: dict[str, Any]) -> str:
    """In words."""
    return (
        f"{measured['size']}: CPU-seconds for a thousand target tokens: {measured['whole']:.3f} in "
        f"`transduce train`, {measured['steps']:.3f} in bare steps ({measured['overhead']:+.1%}); "
        f"reading and batching {measured['loading']:.4f} ({measured['loading_share']:.1%} of that)"
    )
