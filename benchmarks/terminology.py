"""Effect of terminology constraints on translation, with words of the reference as terms.

    python benchmarks/terminology.py --run RUN --source test.zh.gz --target test.en.gz

The glossary of a line has one word (two, or two neighbours as one phrase) of its reference that the
plain translation lacks; other lines have no constraint.  Prints the share of these terms in the
outputs, BLEU and chrF, and the time.  As the terms are right by construction, the interval (paired
bootstrap) is against the plain translation with the terms appended: the gain from their placement.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import re
import time
from pathlib import Path

import torch

import transduce
from transduce.data.lines import read_lines
from transduce.metrics.measure import make_metric, measure
from transduce.metrics.significance import paired_bootstrap

BEAM = 8
WORD = r"[^\W\d_]{4,}"
METRICS = ("bleu", "chrf")


def missing(reference: str, plain: str, size: int) -> list[str]:
    """Each `size` words in a row of the reference of which the plain translation has none."""
    there = set(re.findall(WORD, plain))
    in_a_row = " ".join([WORD] * size)
    phrases = re.findall(rf"\b(?=({in_a_row})\b)", reference)  # also such as overlap
    return [phrase for phrase in phrases if there.isdisjoint(phrase.split())]


def main() -> None:
    """Read the arguments, translate, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1, help="of the choice of terms")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    run = transduce.load(arguments.run, "cpu")
    assert isinstance(run.translator.options, transduce.DecodingOptions)
    options = dataclasses.replace(run.translator.options, beam_size=BEAM)
    lines, references = list(read_lines(arguments.source)), list(read_lines(arguments.target))
    begin = time.process_time()
    plain = [found.text for found in run.translate_batch(lines, options)]
    print(f"plain: {time.process_time() - begin:.0f} CPU-seconds, a beam of {BEAM}")
    rows = [[line] for line in references]
    alone = measure(METRICS, plain, rows)
    for name, size, count in (("a word", 1, 1), ("two words", 1, 2), ("a phrase of two", 2, 1)):
        chance = random.Random(arguments.seed)
        terms = [
            tuple(chance.sample(found, min(count, len(found))))
            for found in (missing(*pair, size) for pair in zip(references, plain, strict=True))
        ]
        settings = [dataclasses.replace(options, constraints=term) for term in terms]
        begin = time.process_time()
        texts = [found.text for found in run.translate_batch(lines, settings)]
        spent = time.process_time() - begin
        wanted = [(term, text) for row, text in zip(terms, texts, strict=True) for term in row]
        kept = sum(re.search(rf"\b{re.escape(t)}\b", text) is not None for t, text in wanted)
        print(f"{name}: {kept:,} of {len(wanted):,} terms there, {spent:.0f} CPU-seconds")
        behind = [" ".join([text, *term]) for text, term in zip(plain, terms, strict=True)]
        for metric in map(make_metric, METRICS):
            found = paired_bootstrap(metric, behind, texts, rows)
            interval = f"{found.difference:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"
            print(
                f"  {metric.name}: plain {alone[metric.name]:.2f}, put behind {found.score_a:.2f}, "
                f"demanded {found.score_b:.2f}, {interval}"
            )


if __name__ == "__main__":
    main()
