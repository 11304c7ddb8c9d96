"""Placeholders in sentences: share preserved, and cost, by each method.

    python benchmarks/placeholders.py runs/tatoeba-zh-en zh test.zh.gz test.en.gz

A placeholder, or a pair of tags, is put at a random place of each of the first sentences of 6 to 25
characters.  BLEU is computed after removal of the placeholders, and for comparison on the same
sentences without any.
"""

from __future__ import annotations

import argparse
import logging
import random
from pathlib import Path

import transduce
from transduce.data.lines import read_lines
from transduce.localise.alignment import aligner
from transduce.localise.document import Segment, Span
from transduce.localise.translate import localised
from transduce.metrics import measure

PLACEHOLDERS = (("[X6X]",), ("%s",), ("{0}",), ("<b>", "</b>"))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("run", type=Path)
    arguments.add_argument("language", help="code of the source")
    arguments.add_argument("source", type=Path)
    arguments.add_argument("reference", type=Path)
    arguments.add_argument("--lines", type=int, default=100)
    given = arguments.parse_args()
    logging.getLogger("transduce").setLevel(logging.ERROR)  # unknown tokens
    translator = transduce.load(given.run, "cpu").translator
    pairs = zip(read_lines(given.source), read_lines(given.reference), strict=True)
    short = [pair for pair in pairs if 6 <= len(pair[0]) <= 25][: given.lines]
    plain = [one.text for one in translator.translate([source for source, _ in short])]
    references = [reference for _, reference in short]
    print(f"without placeholders: {bleu(plain, references):.1f} BLEU")
    for names in PLACEHOLDERS:
        draw = random.Random(1)
        texts = [with_placeholders(source, names, draw) for source, _ in short]
        segments = [Segment(f"{i}", text, (Span(0, 1),)) for i, text in enumerate(texts)]
        for way, align in (("alignment, constraints", aligner(translator)), ("constraints", None)):
            options = translator.options
            found = localised(segments, given.language, translator.attempt, options, align)
            kept = [i for i, one in enumerate(found) if one.state == "translated"]
            shown = [without(found[i].target, names) for i in kept]
            some = [references[i] for i in kept]
            print(
                f"{' '.join(names)}  {way}: {len(kept)} of {len(found)} translated, "
                f"{bleu(shown, some):.1f} BLEU; without {bleu([plain[i] for i in kept], some):.1f}"
            )


def with_placeholders(text: str, names: tuple[str, ...], draw: random.Random) -> str:
    """A text with placeholders inside it, some characters apart."""
    places = sorted(draw.sample(range(1, len(text) - 1), len(names)))
    parts, last = [], 0
    for place, name in zip(places, names, strict=True):
        parts += text[last:place], name
        last = place
    return "".join([*parts, text[last:]])


def without(text: str, names: tuple[str, ...]) -> str:
    for name in names:
        text = text.replace(name, "" if name.startswith("<") else " ")
    return " ".join(text.split())


def bleu(outputs: list[str], references: list[str]) -> float:
    if not outputs:
        return 0.0
    return float(measure(("bleu",), outputs, [[reference] for reference in references])["bleu"])


if __name__ == "__main__":
    main()
