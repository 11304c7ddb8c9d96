"""Data of a training: kind of task, facts, cleaned and split files."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from transduce.data.filters import Pair, hash_of
from transduce.data.pairs import JsonLines, without_marks
from transduce.data.write_pairs import write_pairs
from transduce.doctor.corpora import Corpus
from transduce.doctor.examine import examined
from transduce.doctor.repeats import folded
from transduce.doctor.sample import Sample
from transduce.errors import DataError
from transduce.make.collect import are_labels
from transduce.make.plan import Facts, Kind
from transduce.text.scripts import script_of

DROPPED: Mapping[Kind, tuple[str, ...]] = {
    "translation": (
        *("empty", "duplicate", "encoding", "untranslated", "spreadsheet", "length", "language"),
        "alignment",
    ),
    "spelling": ("empty", "duplicate", "encoding"),
    "classification": ("empty", "duplicate", "encoding"),
}
"""Faults of pairs that are left out."""
NOTED = ("near-duplicate", "numbers", "placeholders", "tags", "entities")
"""Faults of translations that are counted alone."""
LEAST_PAIRS = 50
SHARE = 0.05
"""Share of the sources held out for each of validation and test, within the limits below."""
VALID_PAIRS = (20, 300)
TEST_PAIRS, A_MINUTE = (20, 500), 100
"""Limits of the test; and its pairs for each minute, so that it takes a small share of them."""
PHRASE = 4
"""Words of a target, at least, that must not be in training and test."""
ONE_WORD = 0.7
"""Share of sources of a word, at least, in spelling and inflection."""
SHORT = 32
MAX_SYMBOLS = 400
"""Different symbols of targets, at most, that are sounds rather than words."""
SAMPLE = 20_000
_DIGITS = re.compile(r"\d+")


def kind_of(pairs: Sequence[Pair]) -> Kind:
    """Kind of task of a sample of pairs."""
    targets = Counter(target for _, target in pairs)
    if are_labels(len(targets), len(pairs)) and max(map(len, targets)) <= 2 * SHORT:
        return "classification"
    sources = [without_marks(source) for source, _ in pairs]
    words = np.mean([len(source.split()) == 1 for source in sources])
    short = np.mean(
        [max(len(s), len(t)) <= SHORT for s, (_, t) in zip(sources, pairs, strict=True)]
    )
    spaced = np.mean([len(target.split()) == 1 for _, target in pairs]) >= ONE_WORD
    if words >= ONE_WORD and short >= ONE_WORD and (spaced or _are_symbols(pairs)):
        return "spelling"
    return "translation"


def _are_symbols(pairs: Sequence[Pair]) -> bool:
    """True for targets that are symbols of an inventory, between blanks."""
    symbols = Counter(symbol for _, target in pairs for symbol in target.split())
    per_target = symbols.total() / max(len(pairs), 1)
    return per_target >= 2 and len(symbols) <= min(MAX_SYMBOLS, len(pairs))


def facts_of(pairs: Sequence[Pair], kind: Kind | None = None, count: int = 0) -> Facts:
    """Facts of a sample.  count: pairs of all the data; by default those of the sample."""
    kind = kind or kind_of(pairs)
    lengths = np.array([(len(source), len(target)) for source, target in pairs])
    scripts = [
        Counter(script_of(c) for pair in pairs for c in pair[side] if c.isalpha())
        for side in (0, 1)
    ]
    mains = [counts.most_common(1)[0][0] if counts else "" for counts in scripts]
    return Facts(
        kind=kind,
        pairs=count or len(pairs),
        source_length=float(lengths[:, 0].mean()),
        target_length=float(lengths[:, 1].mean()),
        longest=int(np.quantile(lengths if kind != "classification" else lengths[:, 0], 0.99)),
        symbols=kind == "spelling" and _are_symbols(pairs),
        joint=mains[0] == mains[1],
        characters=[len(set().union(*texts)) for texts in zip(*pairs, strict=True)],
    )


@dataclass(frozen=True)
class Prepared:
    """Data of a training.

    counts: pairs of each split.  dropped: pairs left out, by kind of fault; near: those of
    training whose target is in validation or test.  noted: faults of pairs that stay.
    """

    facts: Facts
    paths: Mapping[str, str]
    counts: Mapping[str, int]
    read: int
    dropped: Mapping[str, int]
    noted: Mapping[str, int]


def prepare(pairs: Iterable[Pair], directory: Path, minutes: float) -> Prepared:
    """Inspect pairs, and write training, validation and test data into a directory.

    Near-duplicates of a source are in the same split.  minutes: of the whole request, which limit
    the test.  Raises DataError for too few pairs.
    """
    directory.mkdir(parents=True, exist_ok=True)
    every = write_pairs(pairs, directory / "all.jsonl")
    config = JsonLines(path=every)
    corpus = Corpus("train", config, Path())
    sample, read = _sample(corpus)
    kind = kind_of(sample)
    left_out = DROPPED[kind]
    kinds = (*left_out, *NOTED) if kind == "translation" else left_out
    dropped, noted = Counter[str](), Counter[str]()
    low, high = TEST_PAIRS
    tested = low, min(max(int(A_MINUTE * minutes), A_MINUTE), high)
    held_out = {"valid": _share(read, VALID_PAIRS), "test": _share(read, tested)}
    splits: dict[str, list[Pair]] = {"valid": [], "test": [], "train": []}
    for line in examined([corpus], kinds):
        if reason := next((name for name in left_out if name in line.faults), None):
            dropped[reason] += 1
            continue
        noted.update(line.faults.keys())
        splits[_split_of(line.pair, held_out)].append(line.pair)
    every.unlink()
    if kind != "classification":
        targets = (target for name in held_out for _, target in splits[name])
        apart_from = {folded(text) for text in targets if len(text.split()) >= PHRASE}
        apart = [pair for pair in splits["train"] if folded(pair[1]) not in apart_from]
        dropped["near test"] = len(splits["train"]) - len(apart)
        splits["train"] = apart
    counts = {name: len(rows) for name, rows in splits.items()}
    if counts["train"] < LEAST_PAIRS or not counts["valid"] or not counts["test"]:
        raise DataError(
            f"{read} pairs, of which {counts['train']} can be trained on; give {LEAST_PAIRS} at "
            "least, and different ones"
        )
    paths = {
        name: str(write_pairs(rows, directory / f"{name}.jsonl").resolve())
        for name, rows in splits.items()
    }
    step = max(counts["train"] // SAMPLE, 1)
    facts = facts_of(splits["train"][::step], kind, counts["train"])
    return Prepared(facts, paths, counts, read, dict(+dropped), dict(noted))


def _sample(corpus: Corpus) -> tuple[list[Pair], int]:
    """Pairs spread evenly, without blank ones, and the number of all."""
    sample, read = Sample[Pair](SAMPLE), 0
    for _, pair in corpus.pairs():
        read += 1
        if all(text.strip() for text in pair):
            sample.add(pair)
    if not sample.rows:
        raise DataError("there is no pair with text on both sides")
    return sample.rows, read


def _share(pairs: int, limits: tuple[int, int]) -> float:
    """Share to hold out, for a number of pairs within limits and a tenth at most."""
    low, high = limits
    return min(max(SHARE, low / pairs), high / pairs, 0.1)


def _split_of(pair: Pair, held_out: Mapping[str, float]) -> str:
    position = hash_of((_DIGITS.sub("0", folded(without_marks(pair[0]))), "")) / 2**64
    for name, share in held_out.items():
        if position < share:
            return name
        position -= share
    return "train"


def read_split(path: str) -> Iterator[Pair]:
    """Pairs of a split."""
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            fields = json.loads(line)
            yield fields["source"], fields["target"]
