"""Speed of a draft model: greedy translation of single lines, with it and without, alternately.

    python benchmarks/draft.py --run runs/large --draft runs/small --lines test.en.gz

Prints tokens per CPU-second of both and their ratio, the mean number of tokens per pass of the
large model, and the number of equal outputs; with --json as one object.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time
from pathlib import Path
from typing import Any

import torch

import transduce
from transduce.data.lines import read_lines
from transduce.sequence import Padded


def count_passes(run: transduce.Run) -> list[int]:
    """A list to which each further pass of the run's model appends its tokens."""
    passes: list[int] = []
    step = run.model.step

    def noted(target: Padded, state: Any) -> torch.Tensor:
        passes.append(target.real.shape[1])
        return step(target, state)  # type: ignore[no-any-return, operator]

    run.model.step = noted  # type: ignore[assignment]
    return passes


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--count", type=int, default=200, help="lines to translate")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run = transduce.load(arguments.run, "cpu")
    together = run.with_models(draft=transduce.load(arguments.draft, "cpu"))
    options = dataclasses.replace(run.translator.options, beam_size=1)
    passes = count_passes(run)
    seconds, tokens, steps = [0.0, 0.0], 0, [0, 0]
    equal = lines = 0
    for i, line in enumerate(itertools.islice(read_lines(arguments.lines), arguments.count)):
        texts = ["", ""]
        for which in (0, 1) if i % 2 else (1, 0):
            before, begin = len(passes), time.process_time()
            (found,) = (run, together)[which].translate_batch([line], options)
            seconds[which] += time.process_time() - begin
            steps[which] += len(passes) - before
            texts[which] = found.text
        tokens += len(found.tokens) + 1
        lines, equal = lines + 1, equal + (texts[0] == texts[1])
    alone, drafted = (tokens / one for one in seconds)
    each = steps[0] / max(steps[1], 1)
    if arguments.json:
        rates = {"tokens_per_cpu_second": [alone, drafted], "ratio": drafted / alone}
        print(json.dumps({"lines": lines, "equal": equal, **rates, "tokens_per_pass": each}))
        return
    print(f"alone            {alone:8,.1f} tokens a CPU-second")
    print(f"with the draft   {drafted:8,.1f}, {drafted / alone:.2f} times")
    print(f"                 {each:.2f} tokens for each pass of the large model")
    print(f"equal            {equal} of {lines} lines")


if __name__ == "__main__":
    main()
