"""Add noise to a parallel corpus, to measure the effect of cleaning.

    python benchmarks/noise.py train.zh.gz train.en.gz noisy

Writes noisy.source and noisy.target: all pairs, 6,000 mismatched pairs, and fifteen copies of each
of 600 pairs, in random order.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from transduce.data.text_files import read_lines

STRANGERS, COPIED, COPIES = 6000, 600, 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("output", help="beginning of the names of both files to write")
    options = parser.parse_args()
    chance = random.Random(5)
    source, target = list(read_lines(options.source)), list(read_lines(options.target))
    n = len(source)
    pairs = list(zip(source, target, strict=True))
    pairs += [(source[chance.randrange(n)], target[chance.randrange(n)]) for _ in range(STRANGERS)]
    for i in chance.sample(range(n), COPIED):
        pairs += [(source[i], target[i])] * COPIES
    chance.shuffle(pairs)
    for side, name in enumerate(("source", "target")):
        path = Path(f"{options.output}.{name}")
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    print(f"{len(pairs):,} pairs, {n:,} of them as they were")


if __name__ == "__main__":
    main()
