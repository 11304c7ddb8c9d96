"""Data of `transduce make`: the kind of task, facts, cleaned and split files, scores of outputs;
results of steps."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from transduce.data.encoded import Pair, has_text, hash_of
from transduce.data.pairs import JsonLines, without_marks, write_pairs
from transduce.errors import DataError, RunError, SettingError
from transduce.examination.corpora import ExaminedCorpus, Sample, folded
from transduce.examination.examine import Examined, examined, kinds_of_task
from transduce.examination.language import SideOrder
from transduce.making.columns import are_labels
from transduce.making.plan import DataFacts, Destination, Kind, interval
from transduce.metrics.measure import make_metric
from transduce.metrics.metric import paired_bootstrap
from transduce.tasks.evaluation import Evaluation
from transduce.text.languages import languages_of_texts
from transduce.text.scripts import script_of

logger = logging.getLogger("transduce")

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
SAMPLE, LEARNT = 20_000, 2_000
"""Pairs, at least, that kind and facts are of; and pairs for each minute, at most, from which an
examination learns what is usual."""
READ_SHARE, PREPARE_SHARE, LEAST_READ = 0.1, 0.3, 2_000
"""Shares of the minutes after which reading and examination end, and pairs before that."""
UNEXAMINED = 500_000
"""Pairs, at most, that are taken without examination when its time is over."""
Row = TypeVar("Row")
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


def facts_of(pairs: Sequence[Pair], kind: Kind | None = None, count: int = 0) -> DataFacts:
    """Facts of a sample.  count: pairs of all the data; by default those of the sample."""
    kind = kind or kind_of(pairs)
    lengths = np.array([(len(source), len(target)) for source, target in pairs])
    scripts = [
        Counter(script_of(c) for pair in pairs for c in pair[side] if c.isalpha())
        for side in (0, 1)
    ]
    mains = [counts.most_common(1)[0][0] if counts else "" for counts in scripts]
    return DataFacts(
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
class PreparedData:
    """Data of a training.

    counts: pairs of each split.  dropped: pairs left out, by kind of fault; near: those of
    training whose target is in validation or test.  noted: faults of pairs that stay; time: they
    were not examined.  swapped: pairs that looked like target and source, and were turned round.
    columns: of each table.
    """

    facts: DataFacts
    paths: Mapping[str, str]
    counts: Mapping[str, int]
    read: int
    dropped: Mapping[str, int]
    noted: Mapping[str, int]
    swapped: int = 0
    columns: Sequence[str] = ()


def prepare(
    pairs: Iterable[Pair],
    directory: Path,
    minutes: float,
    kind: Kind | None = None,
    test: Sequence[Pair] = (),
) -> PreparedData:
    """Inspect pairs, and write training, validation and test data into a directory.

    Near-duplicates of a source are in the same split.  minutes: of the whole request, which limit
    the test.  kind: by default as recognised.  test: pairs of a test, which are taken as they are
    and left out of the others; by default some are held out.  Raises DataError for too few pairs.
    """
    directory.mkdir(parents=True, exist_ok=True)
    clock = _Clock(60 * minutes)
    every = write_pairs(clock.within(pairs, READ_SHARE), directory / "all.jsonl")
    if clock.is_over:
        logger.warning("the rest of the files is not read, for lack of time; give more minutes")
    config = JsonLines(path=every)
    corpus = ExaminedCorpus("train", config, Path())
    sample, read = _sample(corpus)
    kind = kind or kind_of(sample)
    thinned = functools.partial(_thinned, most=max(int(LEARNT * minutes), LEAST_READ))
    swapped = _turned_round(thinned(sample), corpus, directory) if kind == "translation" else 0
    left_out = kinds_of_task(DROPPED[kind], sample)
    kinds = (*left_out, *NOTED) if kind == "translation" else left_out
    dropped, noted = Counter[str](), Counter[str]()
    low, high = TEST_PAIRS
    tested = low, min(max(int(A_MINUTE * minutes), A_MINUTE), high)
    held_out = {"valid": _share(read, VALID_PAIRS), "test": _share(read, tested)}
    splits: dict[str, list[Pair]] = {"valid": [], "test": [*test], "train": []}
    tested_keys = {_key_of(source) for source, _ in splits["test"]}
    if test:
        del held_out["test"]
    n_lines = 0
    for pair, faults in _with_faults(examined([corpus], kinds, learn=thinned), corpus, read, clock):
        n_lines += 1
        if reason := next((name for name in left_out if name in faults), None):
            dropped[reason] += 1
            continue
        key = _key_of(pair[0])
        if key in tested_keys:
            dropped["near test"] += 1
            continue
        noted.update(faults)
        splits[_split_of(key, held_out)].append(pair)
    every.unlink()
    dropped["time"] = read - n_lines
    if kind != "classification":
        targets = (target for name in ("valid", "test") for _, target in splits[name])
        apart_from = {folded(text) for text in targets if len(text.split()) >= PHRASE}
        apart = [pair for pair in splits["train"] if folded(pair[1]) not in apart_from]
        dropped["near test"] += len(splits["train"]) - len(apart)
        splits["train"] = apart
    counts = {name: len(rows) for name, rows in splits.items()}
    if counts["train"] < LEAST_PAIRS or not counts["valid"] or not counts["test"]:
        raise DataError(_too_few(read, counts, +dropped))
    paths = {
        name: str(write_pairs(rows, directory / f"{name}.jsonl").resolve())
        for name, rows in splits.items()
    }
    step = max(counts["train"] // SAMPLE, 1)
    facts = facts_of(splits["train"][::step], kind, counts["train"])
    return PreparedData(facts, paths, counts, read, dict(+dropped), dict(noted), swapped)


def _with_faults(
    lines: Iterable[Examined], corpus: ExaminedCorpus, read: int, clock: _Clock
) -> Iterator[tuple[Pair, Iterable[str]]]:
    """Pairs with the names of their faults: when the time for that is over, those that are blank or
    repeated, and time for any other pair.  read: number of pairs of the corpus."""
    n_lines = 0
    for line in clock.within(lines, PREPARE_SHARE):
        n_lines += 1
        yield line.pair, line.faults.keys()
    if n_lines == read:
        return
    pairs = (pair for _, pair in corpus.pairs())
    keys = set(map(hash_of, itertools.islice(pairs, n_lines)))
    for pair in itertools.islice(pairs, UNEXAMINED):
        key = hash_of(pair)
        repeated = "duplicate" if key in keys else "time"
        keys.add(key)
        yield pair, (repeated if has_text(pair) else "empty",)


def _thinned(pairs: list[Pair], most: int) -> list[Pair]:
    """Pairs spread evenly, so many at most."""
    return pairs[:: -(-len(pairs) // most) or 1]


def _turned_round(sample: Sequence[Pair], corpus: ExaminedCorpus, directory: Path) -> int:
    """Turn pairs round that look like target and source, in the file; returns how many."""
    order = SideOrder(sample)
    if not order.has_swapped:
        return 0
    swapped = 0

    def turned() -> Iterator[Pair]:
        nonlocal swapped
        for _, pair in corpus.pairs():
            is_swapped = order.is_swapped(pair)
            swapped += is_swapped
            yield pair[::-1] if is_swapped else pair

    write_pairs(turned(), directory / "turned.jsonl").replace(directory / "all.jsonl")
    logger.warning("%s pairs look like target -> source; they are turned round", f"{swapped:,}")
    return swapped


def _too_few(read: int, counts: Mapping[str, int], dropped: Mapping[str, int]) -> str:
    """Message for too few pairs: those left in each split, and the reasons of the others."""
    reasons = ", ".join(f"{name} {count:,}" for name, count in dropped.items())
    left = f"{counts['train']} for training, {counts['valid']} for validation, {counts['test']} for"
    return (
        f"{read} pairs, of which are left {left} the test"
        + (f" (left out: {reasons})" if reasons else "")
        + f"; give {LEAST_PAIRS} at least to train on, and different ones"
    )


class _Clock:
    """Time for the preparation.  is_over: it ended a loop."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._began, self.is_over = seconds, time.monotonic(), False

    def within(self, rows: Iterable[Row], share: float) -> Iterator[Row]:
        """Rows until a share of the seconds is over, but a few thousand at least."""
        for number, row in enumerate(rows):
            late = time.monotonic() - self._began > share * self._seconds
            if late and number >= LEAST_READ:
                self.is_over = True
                return
            yield row


def _sample(corpus: ExaminedCorpus) -> tuple[list[Pair], int]:
    """Pairs spread evenly, without blank ones, and the number of all."""
    sample, read = Sample[Pair](SAMPLE), 0
    for _, pair in corpus.pairs():
        read += 1
        if all(text.strip() for text in pair):
            sample.add(pair)
    if not sample.rows:
        raise DataError("there is no pair with text on both sides")
    return sample.rows, read


def languages_of_sides(pairs: Sequence[Pair]) -> tuple[str, str]:
    """Codes of the languages of both sides by detection; empty where it is not sure, or without its
    extra."""
    source, target = languages_of_texts([[pair[side] for pair in pairs] for side in (0, 1)])
    return ("", "") if source == target else (source, target)


def _share(pairs: int, limits: tuple[int, int]) -> float:
    """Share to hold out, for a number of pairs within limits and a tenth at most."""
    low, high = limits
    return min(max(SHARE, low / pairs), high / pairs, 0.1)


def _split_of(key: str, held_out: Mapping[str, float]) -> str:
    position = hash_of((key, "")) / 2**64
    for name, share in held_out.items():
        if position < share:
            return name
        position -= share
    return "train"


def _key_of(source: str) -> str:
    """Key of a source that those alike but for case, punctuation and digits share; where digits or
    signs are the text, of the source itself."""
    source = without_marks(source)
    plain = folded(source)
    digits = sum(map(str.isdigit, plain))
    if 2 * digits >= sum(map(str.isalnum, plain)):
        return source if digits in (0, len(plain)) else plain
    return _DIGITS.sub("0", plain)


def read_prepared_split(path: str) -> Iterator[Pair]:
    """Pairs of a split."""
    with Path(path).open(encoding="utf-8") as file:
        for line in file:
            fields = json.loads(line)
            yield fields["source"], fields["target"]


@dataclass(frozen=True)
class Request:
    """Files, minutes and options of a call.

    start: run to go on from.  test: files of the test.  columns: of source and target in tables.
    task: empty to be recognised.
    """

    files: Sequence[str]
    minutes: float
    monolingual: str = ""
    target_language: str = ""
    start: str = ""
    test: Sequence[str] = ()
    columns: Sequence[str] = ()
    task: Kind | Literal[""] = ""
    destination: Destination = ""


@dataclass
class Plan:
    """The request, and the results of the steps so far.

    failure: message of a training that failed.  trained: it has ended.  gain: points of twice the
    data, and their 95 % interval; empty if unmeasured.  start_gain: likewise, over the run to start
    from as it was.  start_seconds: of a step from the run to
    start from, as measured.  overhead: seconds of a short training
    beside its steps.  test_seconds: of the test.  seconds: spent before the training.
    """

    request: Request
    prepared: PreparedData | None = None
    tokens_per_second: float = 0.0
    tokens_of_a_step: int = 0
    order: list[tuple[str, float]] = field(default_factory=list)
    tried: dict[str, float] = field(default_factory=dict)
    candidate: str = ""
    failure: str = ""
    trained: bool = False
    synthetic: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list)
    gain: tuple[float, float, float] | tuple[()] = ()
    start_gain: tuple[float, float, float] | tuple[()] = ()
    overhead: float = 0.0
    start_seconds: float = 0.0
    test_seconds: float = 0.0
    seconds: float = 0.0

    def extended(self, minutes: float, run: Path) -> float:
        """Go on with more minutes; returns those that are added.  Raises SettingError for no more
        than before."""
        added = minutes - self.request.minutes
        if added <= 0:
            had = f"{self.request.minutes:g}"
            raise SettingError(
                f"--minutes {minutes:g}: {run} has had {had}; with --resume, give more than these"
            )
        self.request = replace(self.request, minutes=minutes)
        self.trained, self.curve, self.gain, self.start_gain = False, [], (), ()
        return added

    @classmethod
    def read(cls, path: Path) -> Plan:
        """Plan of a run.  Raises RunError if there is none."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            request, prepared = Request(**content.pop("request")), content.pop("prepared")
            if prepared is not None:
                prepared["facts"] = DataFacts(**prepared["facts"])
                prepared = PreparedData(**prepared)
            return cls(request, prepared, **content)
        except (OSError, ValueError, TypeError, KeyError):
            run = path.parent.parent
            raise RunError(f"{run} was not begun by `transduce make`; leave out --resume") from None


GOOD, POOR = 65.0, 35.0
"""Scores of an output from which it is close to the reference, and below which it is wrong."""
LEAST_SCORE = 15.0
"""Points below which a training says nothing of the data: some ten need no learning."""
ALIKE = 0.9
"""Share of outputs that are the same, at least, of a model that has learnt nothing."""
MAIN: Mapping[Kind, str] = {
    "translation": "chrf",
    "spelling": "accuracy",
    "classification": "accuracy",
}


def scores_of_items(evaluation: Evaluation, kind: Kind) -> list[float]:
    """Score of each output in percent: chrF, letters or symbols that are right, or the label."""
    name = {"translation": "chrf", "spelling": "per", "classification": "accuracy"}[kind]
    name = "cer" if kind == "spelling" and "cer" in evaluation.scores else name
    metric = make_metric(name, evaluation.language)
    rows = metric.statistics(evaluation.hypotheses, evaluation.references)
    scores = [metric.score(row) for row in rows]
    if not metric.higher_is_better:
        scores = [max(100 - score, 0.0) for score in scores]
    if kind == "spelling":  # a word is right or wrong; one slip is "partly"
        scores = [score if score == 100 else min(score, GOOD - 0.1) for score in scores]
    return scores


def mean_score(evaluation: Evaluation, kind: Kind) -> float:
    """chrF of translations, else the percentage of right outputs."""
    metric = make_metric(MAIN[kind], evaluation.language)
    rows = metric.statistics(evaluation.hypotheses, evaluation.references)
    return metric.score(rows.sum(axis=0))


def chance(evaluation: Evaluation, kind: Kind) -> float:
    """Score that needs no learning; of labels, of the most frequent one, with its interval."""
    if kind != "classification":
        return LEAST_SCORE
    items = len(evaluation.references)
    frequent = Counter(row[0] for row in evaluation.references).most_common(1)[0][1]
    share = 100 * frequent / items
    return share + interval(share, items)


def has_learnt(evaluation: Evaluation, kind: Kind) -> bool:
    """False for outputs that are all alike, or no better than those that need no learning."""
    outputs = Counter(output.strip() for output in evaluation.hypotheses)
    if kind != "classification" and outputs.most_common(1)[0][1] >= ALIKE * outputs.total() > 1:
        return False
    if kind == "spelling":
        each = scores_of_items(evaluation, kind)
        return max(each) >= GOOD or sum(each) / len(each) >= POOR
    return mean_score(evaluation, kind) >= chance(evaluation, kind)


def gain_of(before: Evaluation, after: Evaluation, kind: Kind) -> tuple[float, float, float]:
    """Points between two models on the same items, and their 95 % interval over the items.

    before, after: evaluations of the same items.  kind: of the outputs.
    """
    metric = make_metric(MAIN[kind], after.language)
    comparison = paired_bootstrap(metric, before.hypotheses, after.hypotheses, after.references)
    low, high = sorted((comparison.low, comparison.high))
    return round(comparison.difference, 1), round(low, 1), round(high, 1)
