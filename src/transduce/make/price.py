"""Price of the filters of `transduce doctor`: short trainings with and without each.

DIRECTORY/prices.json   the data, and the outputs of each training: the same command goes on
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from transduce.data.filters import Pair
from transduce.data.write_pairs import write_pairs
from transduce.doctor.examine import Examined
from transduce.doctor.repeats import folded
from transduce.doctor.sample import Sample
from transduce.errors import DataError, RunError
from transduce.make.data import PHRASE, facts_of
from transduce.make.pace import machine, tokens_per_second
from transduce.make.plan import Facts, candidates, recipe_of
from transduce.make.scores import LEAST_SCORE
from transduce.metrics.measure import make_metric
from transduce.metrics.significance import bootstrap_over_runs
from transduce.runs.loading import load
from transduce.runs.training import train
from transduce.tasks.evaluation import Evaluation
from transduce.training.weights import write_text

logger = logging.getLogger("transduce")

WHOLE, ANY = "", "any fault"
"""Trainings on all pairs, and on those without a fault."""
UNPRICED = ("empty", "leak")
"""Faults of pairs that no training here has: blank ones, and those with the source of a test."""
ROUNDS = 3
"""Seeds of each training, at most."""
PACE_SHARE, OVERHEAD = 0.05, 4.0
"""Share of the minutes to measure the speed, and seconds of a training beside its steps."""
LEAST_STEPS = 30
TESTED, LEAST_TESTED = 300, 20
METRICS = {"translation": "bleu", "spelling": "accuracy", "classification": "accuracy"}


class Price(NamedTuple):
    """Worth of leaving out the pairs with a kind of fault.

    pairs: of the whole corpus.  score: of a training on all pairs.  gain, low, high: points of the
    metric, with a 95 % interval over test items and seeds.
    """

    kind: str
    pairs: int
    metric: str
    seeds: int
    score: float
    gain: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Advice in a few words."""
        if self.seeds < 2 or self.score < LEAST_SCORE:
            return "unsettled, for more minutes"
        return "leave them out" if self.low > 0 else "leave it"

    def __str__(self) -> str:
        metric = self.metric.replace("bleu", "BLEU")
        gain = f"{self.gain:+.1f} ± {(self.high - self.low) / 2:.1f} {metric}".replace("-", "−")
        return f"{self.kind}: −{self.pairs:,} pairs, {gain}: {self.verdict}"


@dataclass
class Prices:
    """Trainings so far; outputs: of the test, by kind of fault left out, one a seed."""

    fingerprint: str
    counts: Mapping[str, int] = field(default_factory=dict)
    steps: int = 0
    references: Sequence[Sequence[str]] = ()
    outputs: dict[str, list[Sequence[str]]] = field(default_factory=dict)

    def rows(self, metric: str) -> Iterator[Price]:
        """Prices of the kinds that were trained, by paired seeds."""
        whole = self.outputs.get(WHOLE, [])
        for kind, outputs in self.outputs.items():
            seeds = min(len(outputs), len(whole))
            if kind != WHOLE and seeds:
                runs = whole[:seeds], outputs[:seeds]
                compared = bootstrap_over_runs(make_metric(metric), *runs, self.references)
                points = compared.score_a, compared.difference, compared.low, compared.high
                yield Price(kind, self.counts[kind], metric, seeds, *points)


Rows = Sequence[tuple[Pair, frozenset[str]]]
"""Pairs with the names of their faults."""


def _split(lines: Iterator[Examined]) -> tuple[Rows, Sequence[Pair], Counter[str]]:
    """Rows to train on, the test, and counts of faults.

    The test is of held-out pairs without a fault, or of such pairs that are not trained on.  Raises
    DataError for too few.
    """
    train, held_out = Sample[tuple[Pair, frozenset[str]]](), Sample[Pair](TESTED)
    counts = Counter[str]()
    for line in lines:
        faults = frozenset([*line.faults, ANY] if line.faults else ())
        if line.corpus.split == "train" and "empty" not in faults:
            counts.update(faults)
            train.add((line.pair, faults))
        elif not faults:
            held_out.add(line.pair)
    clean = held_out.rows
    if len(clean) < LEAST_TESTED:
        clean = [pair for pair, faults in train.rows if not faults][::10]
    test = clean[:: max(len(clean) // TESTED, 1)]
    if len(test) < LEAST_TESTED:
        raise DataError(f"{len(train.rows)} pairs are too few to price the filters on")
    sources, targets = ({folded(pair[side]) for pair in test} for side in (0, 1))
    rows = [
        (pair, faults)
        for pair, faults in train.rows
        if folded(pair[0]) not in sources
        and (len(pair[1].split()) < PHRASE or folded(pair[1]) not in targets)
    ]
    return rows, test, counts


def priced(lines: Iterator[Examined], directory: Path, minutes: float) -> tuple[Prices, str]:
    """Trainings within some minutes, and the name of their metric.

    Raises RunError for a directory with prices of other data, and the errors of training.
    """
    end = time.monotonic() + 60 * minutes
    rows, test, counts = _split(lines)
    facts = facts_of([pair for pair, _ in rows])
    prices = _begun(rows, test, directory)
    prices.counts = counts
    kinds = [WHOLE, *(kind for kind, _ in counts.most_common() if kind not in UNPRICED)]
    paths = {"test": str(write_pairs(test, directory / "test.jsonl").resolve())}
    paths |= {"valid": paths["test"], "train": str((directory / "train.jsonl").resolve())}
    if not prices.steps:
        write_pairs((pair for pair, _ in rows), paths["train"])
        seconds = end - time.monotonic()
        timed = PACE_SHARE * seconds
        rate, tokens, _ = tokens_per_second(facts, paths, directory / "speed", timed)
        each = (1 - 2 * PACE_SHARE) * seconds / ROUNDS / len(kinds) - OVERHEAD
        prices.steps = max(int(each * rate / tokens), LEAST_STEPS)
    last = 0.0
    for seed, kind in ((seed, kind) for seed in range(1, ROUNDS + 1) for kind in kinds):
        outputs = prices.outputs.setdefault(kind, [])
        if len(outputs) >= seed or len(kinds) == 1:
            continue
        began = time.monotonic()
        if began + 1.1 * last > end:
            logger.warning("the minutes are over; the same command goes on")
            break
        logger.info("training %d without %s", seed, kind or "any filter")
        write_pairs((pair for pair, faults in rows if kind not in faults), paths["train"])
        evaluation = _trained(facts, paths, directory / "run", prices.steps, seed)
        prices.references = evaluation.references
        outputs.append(evaluation.hypotheses)
        write_text(directory / "prices.json", json.dumps(vars(prices), ensure_ascii=False) + "\n")
        last = time.monotonic() - began
    return prices, METRICS[facts.kind]


def _begun(rows: Rows, test: Sequence[Pair], directory: Path) -> Prices:
    """Trainings of these data in a directory, or none."""
    content = [[(pair, sorted(faults)) for pair, faults in rows], test]
    fingerprint = hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()
    path = directory / "prices.json"
    directory.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        return Prices(fingerprint)
    prices = Prices(**json.loads(path.read_text(encoding="utf-8")))
    if prices.fingerprint != fingerprint:
        raise RunError(f"{path} holds prices of other data or kinds; give another --trainings")
    return prices


def _trained(
    facts: Facts, paths: Mapping[str, str], run: Path, steps: int, seed: int
) -> Evaluation:
    """Test of a training."""
    candidate = candidates(facts.kind)[0]
    settings: dict[str, Any] = {"steps": steps, **machine(facts.kind, candidate)}
    recipe = recipe_of(facts, candidate, steps, paths, settings) | {"seed": seed}
    recipe["training"] |= {"validate_every": steps}
    if "decoding" in recipe:
        recipe |= {"decoding": {"beam_size": 1}, "evaluation": {"validation_pairs": 0}}
    train(recipe, run, overwrite=True)
    return load(run).evaluate("test")
