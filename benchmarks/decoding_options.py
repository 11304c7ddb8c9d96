"""Speed of the native engine against the PyTorch engine, option by option.

    python benchmarks/decoding_options.py --size small

Random weights in the shape of a Marian model; every output has as many tokens as the longest source
of its batch.  Both engines take turns.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and "OMP_NUM_THREADS" not in os.environ:  # read when torch is loaded
    os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
from collections.abc import Sequence
from typing import Any

import torch
from decoding import batches
from decoding_peers import TOGETHER, Question, marian_shaped, native, pytorch
from workload import SIZES, machine, median, timed

from transduce.decoding.options import DecodingOptions

OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam 5": {"beam_size": 5},
    "beam 5, 5 outputs": {"beam_size": 5, "n_best": 5},
    "coverage penalty": {"beam_size": 5, "coverage_penalty": 0.2},
    "beam groups": {"beam_size": 6, "beam_groups": 3},
    "prefix": {"beam_size": 5, "prefix": "17 18"},
    "n-grams, banned words": {"beam_size": 5, "no_repeat_ngram": 3, "avoid": ("17", "18 19")},
    "repetition penalty": {"beam_size": 5, "repetition_penalty": 1.2},
    "constraint": {"beam_size": 5, "constraints": ("17 18",)},
    "sampling, top-k": {"method": "sample", "top_k": 50},
    "sampling, top-p": {"method": "sample", "top_p": 0.9},
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = parser.add_argument
    add("--size", default="small", choices=SIZES, help="of the random model")
    add("--batch", type=int, default=32, help="sentences decoded together")
    add("--length", type=int, help="tokens of every sentence; by default as in news, mean 28")
    add("--rounds", type=int, default=3, help="batches of each option")
    add("--seed", type=int, default=1, help="of weights and sentences")
    add("--json", action="store_true", help="one object instead of a table")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    result = measured(options)
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"{machine()}; {options.size}, batch {options.batch}, {options.rounds} rounds\n")
    print("| option | times as fast as PyTorch | same outputs |\n|-|-:|-:|")
    for name, (times, same) in result.items():
        print(f"| {name} | {times:.1f} | {same:.0%} |")
    return 0


def measured(options: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Ratio of CPU-seconds and share of equal outputs, for each option."""
    model, config = marian_shaped(SIZES[options.size], options.seed)
    peers = pytorch(model), native(model, config, "float32")
    work = batches(options)
    result = {}
    for name, settings in OPTIONS.items():
        ratios, same = [], 0
        for turn, batch in enumerate(work):
            asked = Question(0, None, forced(settings, max(map(len, batch))))
            spent = {}
            for i in (0, 1) if turn % 2 == 0 else (1, 0):
                spent[i] = timed(lambda i=i: peers[i](batch, asked))  # noqa: B023
            ratios.append(spent[0][0].cpu / spent[1][0].cpu)
            same += sum(a == b for a, b in zip(spent[0][1], spent[1][1], strict=True))
        result[name] = (round(median(ratios), 2), same / (len(work) * options.batch))
    return result


def forced(settings: dict[str, Any], length: int) -> DecodingOptions:
    """Options with outputs of this many tokens."""
    return DecodingOptions(
        **settings,
        length_penalty="none",
        min_length=length,
        max_length_ratio=0.0,
        max_length_extra=length,
        free_end=True,
        batch_tokens=TOGETHER,
    )


if __name__ == "__main__":
    sys.exit(main())
