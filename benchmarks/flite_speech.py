"""Corpus of spoken digits by flite, to learn speaking from: `recipes/speech/spoken-digits.toml`.

    python benchmarks/spoken_digits.py OUT
    python benchmarks/spoken_digits.py OUT/others --voices rms awb kal16

writes OUT/train.zip and OUT/test.zip with a FLAC file for each line of one to four digits, such as
"three one four", a manifest OUT/NAME.jsonl for each with `audio`, `text`, `speaker` and `duration`,
and OUT/NAME.txt with the texts; prints checksums.  No line is in both.  Silence before and after is
cut to 30 ms.  Needs libflite with its voices, and the extra `speech`.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

from synthetic_speech import Flite, Spoken, write_corpus

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def digit_lines(count: int, seed: int) -> list[str]:
    """Different lines of one to four digits, in a random order; all single digits come first."""
    chance = random.Random(seed)
    lines = dict.fromkeys(DIGITS)
    while len(lines) < count:
        lines[" ".join(chance.choices(DIGITS, k=chance.randint(1, 4)))] = None
    rest = list(lines)[len(DIGITS) :]
    chance.shuffle(rest)
    return [*DIGITS, *rest]


def spoken(lines: list[str], voices: list[str], seed: int) -> Iterator[Spoken]:
    """Each line by one of the voices."""
    flite, chance = Flite(), random.Random(seed)
    for line in lines:
        voice = chance.choice(voices)
        samples, rate = flite.say(line, voice)
        yield Spoken(samples, rate, voice, {"text": line})


def main() -> None:
    """Write both archives and their manifests."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path, help="directory of the corpus")
    parser.add_argument("--train", type=int, default=1500, help="lines to learn from")
    parser.add_argument("--test", type=int, default=200, help="lines to test with")
    parser.add_argument("--voices", nargs="+", default=["slt"], help="voices of flite")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    lines = digit_lines(options.train + options.test, options.seed)
    parts = {"train": lines[: options.train], "test": lines[options.train :]}
    for name, part in parts.items():
        write_corpus(options.out / name, spoken(part, options.voices, options.seed), 16_000)
        text = "".join(f"{line}\n" for line in part)
        (options.out / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
