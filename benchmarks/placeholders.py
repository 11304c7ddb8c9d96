"""Placeholders by a run that learnt from messages: each way alone, and several in turn.

    python benchmarks/placeholders.py mask DIRECTORY MASKED
    transduce train recipes/translation/software-en-de.toml --run RUN --set data.root=MASKED
    python benchmarks/placeholders.py measure RUN DIRECTORY

`mask` writes the pairs of train and dev with private characters, the marks, in place of the
placeholders of both sides, for half of the pairs whose sides have the same.  `measure` translates
the lines of test with placeholders as they are (0), with marks (1), without placeholders, which the
alignment puts back (2), and with constraints (3).  A line is left unless a way passes the check of
`transduce localise`.  Place: of the lines with one placeholder, those where the word before or
after it is that of the published translation.  BLEU is of all lines, those left as their sources.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sacrebleu

import transduce
from transduce.data.text_files import read_lines
from transduce.errors import DataError, TransduceError
from transduce.localise import translate
from transduce.localise.placeholders import Protected, check_placeholders, protect
from transduce.localise.translate import Answer, Order, aligner

SHARE = 0.5
LANGUAGES = "en", "de"
ORDERS = "0", "1", "2", "02", "023", "12", "102", "1023"

Work = Generator[list[Order], list[Answer], str]


class Line(NamedTuple):
    """A message with its published translation."""

    source: Protected
    target: str

    def has_place(self, output: str) -> bool | None:
        """True if the only placeholder has a neighbour of the target; None if there are several."""
        names = [self.source.names[mark] for mark in self.source.marks]
        if len(names) != 1 or self.target.count(names[0]) != 1:
            return None
        ours, theirs = (neighbours(text, names[0]) for text in (output, self.target))
        return ours[0] == theirs[0] or ours[1] == theirs[1]


def neighbours(text: str, name: str) -> tuple[str, str]:
    """The words before and after a placeholder; "" for none."""
    before, _, after = text.lower().partition(name.lower())
    return ["", *re.findall(r"\w+", before)][-1], [*re.findall(r"\w+", after), ""][0]


def pairs(directory: Path, split: str) -> list[tuple[str, str]]:
    """Messages of a split with their translations."""
    sides = (read_lines(directory / f"{split}.{language}.gz") for language in LANGUAGES)
    return list(zip(*sides, strict=True))


def mask(directory: Path, masked: Path) -> None:
    """Write the splits with marks in half of the pairs that have the same placeholders."""
    masked.mkdir(parents=True, exist_ok=True)
    for split in ("train", "dev"):
        rows = [marked(*pair) for pair in pairs(directory, split)]
        for language, column in zip(LANGUAGES, zip(*rows, strict=True), strict=True):
            text = "".join(f"{line}\n" for line in column).encode()
            (masked / f"{split}.{language}.gz").write_bytes(gzip.compress(text, mtime=0))
    for language in LANGUAGES:
        shutil.copyfile(directory / f"test.{language}.gz", masked / f"test.{language}.gz")


def marked(source: str, target: str) -> tuple[str, str]:
    """A pair with marks, if its hash says so and both sides have the same placeholders."""
    if int(hashlib.sha256(source.encode()).hexdigest()[:8], 16) >= SHARE * 16**8:
        return source, target
    try:
        protected = protect(source)
        text = protected.marked(target)
        check_placeholders(protected, text)
    except DataError:
        return source, target
    return protected.text, text


def with_marks(source: Protected) -> Work:
    """With the marks themselves, for a run that learnt them."""
    (answer,) = yield [Order(source.text)]
    return translate._output(answer)


WAYS = {
    "0": translate._as_it_is,
    "1": with_marks,
    "2": translate._by_alignment,
    "3": translate._by_constraints,
}


def in_turn(source: Protected, order: str) -> Work:
    """The output of the first way that passes the check.  Raises DataError if none does."""
    for way in order:
        try:
            output = yield from WAYS[way](source)
            check_placeholders(source, output)
        except TransduceError:
            continue
        return output
    raise DataError("no way passes the check")


def measure(run: Path, directory: Path) -> None:
    """Print the figures of each order of ways, then BLEU of the lines without placeholders."""
    translator: Any = transduce.load(run).translator
    align, answers = aligner(translator), dict[Order, Answer]()

    def answer(orders: Sequence[Order]) -> list[Answer]:
        fresh = [order for order in dict.fromkeys(orders) if order not in answers]
        args = translator.attempt, translator.options, align
        answers.update(zip(fresh, translate._answers(fresh, *args), strict=True))
        return [answers[order] for order in orders]

    lines = [Line(protect(source), target) for source, target in pairs(directory, "test")]
    held = [line for line in lines if line.source.marks]
    for order in ORDERS:
        work = translate._translate_together(in_turn(line.source, order) for line in held)
        orders = next(work)
        try:
            while True:
                orders = work.send(answer(orders))
        except StopIteration as stop:
            results = stop.value
        outputs = [
            line.source.shown(line.source.text if isinstance(result, DataError) else result)
            for line, result in zip(held, results, strict=True)
        ]
        n_left = sum(isinstance(result, DataError) for result in results)
        triples = zip(held, outputs, results, strict=True)
        done = [(line, output) for line, output, r in triples if not isinstance(r, DataError)]
        places = [p for line, output in done if (p := line.has_place(output)) is not None]
        bleu = sacrebleu.corpus_bleu(outputs, [[line.target for line in held]]).score
        share = 100 * sum(places) / max(len(places), 1)
        print(f"{order}: {n_left} of {len(held)} left, place {share:.0f} %, BLEU {bleu:.2f}")
    free = [line for line in lines if not line.source.marks]
    texts = [str(text) for text in answer([Order(line.source.text) for line in free])]
    bleu = sacrebleu.corpus_bleu(texts, [[line.target for line in free]]).score
    print(f"{len(free)} lines without placeholders: BLEU {bleu:.2f}")


if __name__ == "__main__":
    command, first, second = sys.argv[1:]
    {"mask": mask, "measure": measure}[command](Path(first), Path(second))
