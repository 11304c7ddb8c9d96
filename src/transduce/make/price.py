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
from typing import Any

from transduce.data.filters import Pair
from transduce.data.write_pairs import write_pairs
from transduce.doctor.examine import Examined
from transduce.doctor.repeats import folded
from transduce.doctor.sample import Sample
from transduce.errors import DataError, RunError
from transduce.make.data import facts_of, kind_of
from transduce.make.pace import machine, tokens_per_second
from transduce.make.plan import Facts, candidates, recipe_of
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
PACE_SHARE = 0.05
OVERHEAD = 4.0
"""Seconds of a training without its steps, about."""
LEAST_STEPS = 30
TESTED, LEAST_TESTED = 300, 20
PHRASE = 4
"""Words of a target, at least, that must not be in training and test."""
METRICS = {"translation": "bleu", "spelling": "accuracy", "classification": "accuracy"}


@dataclass(frozen=True)
class Price:
    """Worth of leaving out the pairs with a kind of fault.

    pairs: of the whole corpus.  gain, low, high: points of the metric, with a 95 % interval over
    test items and seeds.
    """

    kind: str
    pairs: int
    metric: str
    seeds: int
    gain: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Advice in a few words."""
        if self.seeds < 2:
            return "unsettled by a single seed"
        return "leave them out" if self.low > 0 else "leave it"

    def __str__(self) -> str:
        half = (self.high - self.low) / 2
        gain = f"{self.gain:+.1f} ± {half:.1f} {self.metric.replace('bleu', 'BLEU')}"
        return f"{self.kind}: −{self.pairs:,} pairs, {gain}: {self.verdict}"


@dataclass
class Prices:
    """Trainings so far; outputs: of the test, by kind of fault left out, one a seed."""

    counts: Mapping[str, int]
    fingerprint: str
    steps: int = 0
    references: list[list[str]] = field(default_factory=list)
    outputs: dict[str, list[list[str]]] = field(default_factory=dict)

    def rows(self, metric_name: str) -> list[Price]:
        """Prices of the kinds that were trained, by paired seeds."""
        metric, whole, prices = make_metric(metric_name), self.outputs.get(WHOLE, []), []
        for kind, outputs in self.outputs.items():
            seeds = min(len(outputs), len(whole))
            if kind == WHOLE or not seeds:
                continue
            compared = bootstrap_over_runs(metric, whole[:seeds], outputs[:seeds], self.references)
            difference = compared.difference, compared.low, compared.high
            prices.append(Price(kind, self.counts[kind], metric_name, seeds, *difference))
        return prices


@dataclass(frozen=True)
class Corpora:
    """Pairs to train on with the names of their faults, and the test; counts: by kind of fault."""

    rows: Sequence[tuple[Pair, frozenset[str]]]
    test: Sequence[Pair]
    counts: Mapping[str, int]

    def without(self, kind: str) -> list[Pair]:
        """Pairs of a training that leaves out a kind of fault."""
        if kind == ANY:
            return [pair for pair, faults in self.rows if not faults]
        return [pair for pair, faults in self.rows if kind not in faults]


def corpora_of(lines: Iterator[Examined]) -> Corpora:
    """Corpora of examined lines: the test is of held-out pairs without a fault, or of such pairs
    that are not trained on.  Raises DataError for too few."""
    train, test = Sample[tuple[Pair, frozenset[str]]](), Sample[Pair](TESTED)
    counts = Counter[str]()
    for line in lines:
        faults = frozenset(line.faults)
        if line.corpus.split != "train":
            if not faults:
                test.add(line.pair)
        elif "empty" not in faults:
            counts.update([*faults, *([ANY] if faults else [])])
            train.add((line.pair, faults))
    tested = test.rows[:: max(len(test.rows) // TESTED, 1)]
    if len(tested) < LEAST_TESTED:
        clean = [pair for pair, faults in train.rows if not faults]
        tested = clean[:: max(len(clean) // min(TESTED, max(len(clean) // 10, 1)), 1)]
    if len(tested) < LEAST_TESTED:
        raise DataError(f"{len(train.rows)} pairs are too few to price the filters on")
    texts = [{folded(pair[side]) for pair in tested} for side in (0, 1)]
    rows = [
        (pair, faults)
        for pair, faults in train.rows
        if folded(pair[0]) not in texts[0]
        and not (len(pair[1].split()) >= PHRASE and folded(pair[1]) in texts[1])
    ]
    return Corpora(rows, tested, counts)


def priced(lines: Iterator[Examined], directory: Path, minutes: float) -> tuple[Prices, str]:
    """Trainings within some minutes, and the name of their metric.

    Raises RunError for a directory with prices of other data, and the errors of training.
    """
    end = time.monotonic() + 60 * minutes
    corpora = corpora_of(lines)
    pairs = [pair for pair, _ in corpora.rows]
    facts = facts_of(pairs, kind_of(pairs))
    state = _begun(corpora, directory)
    kinds = sorted({kind for _, faults in corpora.rows for kind in faults} - {*UNPRICED})
    kinds = [WHOLE, *([ANY] if kinds else []), *sorted(kinds, key=lambda k: -corpora.counts[k])]
    paths = {"test": str(write_pairs(corpora.test, directory / "test.jsonl").resolve())}
    paths["valid"] = paths["test"]
    if not state.steps:
        paths["train"] = str(write_pairs(pairs, directory / "train.jsonl").resolve())
        state.steps = _steps(facts, paths, directory, end - time.monotonic(), ROUNDS * len(kinds))
    last = 0.0
    for seed, kind in ((seed, kind) for seed in range(1, ROUNDS + 1) for kind in kinds):
        outputs = state.outputs.setdefault(kind, [])
        if len(outputs) >= seed:
            continue
        began = time.monotonic()
        if began + 1.1 * last > end:
            logger.warning("the minutes are over; the same command goes on")
            break
        logger.info("training %d without %s", seed, kind or "any filter")
        rows = corpora.without(kind)
        paths["train"] = str(write_pairs(rows, directory / "train.jsonl").resolve())
        evaluation = _trained(facts, paths, directory / "run", state.steps, seed)
        state.references = [list(texts) for texts in evaluation.references]
        outputs.append(list(evaluation.hypotheses))
        write_text(directory / "prices.json", json.dumps(vars(state), ensure_ascii=False) + "\n")
        last = time.monotonic() - began
    return state, METRICS[facts.kind]


def _begun(corpora: Corpora, directory: Path) -> Prices:
    """Trainings of these data in a directory, or none."""
    rows = [(pair, sorted(faults)) for pair, faults in corpora.rows]
    fingerprint = hashlib.blake2b(json.dumps([rows, corpora.test]).encode()).hexdigest()[:32]
    path = directory / "prices.json"
    if not path.is_file():
        directory.mkdir(parents=True, exist_ok=True)
        return Prices(corpora.counts, fingerprint)
    state = Prices(**json.loads(path.read_text(encoding="utf-8")))
    if state.fingerprint != fingerprint:
        raise RunError(f"{path} holds prices of other data or kinds; give another --trainings")
    return state


def _steps(
    facts: Facts, paths: Mapping[str, str], directory: Path, seconds: float, trainings: int
) -> int:
    """Steps of a training, so that all of them fit into the seconds."""
    rate, tokens = tokens_per_second(facts, paths, directory / "speed", PACE_SHARE * seconds)
    each = (1 - 2 * PACE_SHARE) * seconds / trainings - OVERHEAD
    return max(int(each * rate / tokens), LEAST_STEPS)


def _trained(
    facts: Facts, paths: Mapping[str, str], run: Path, steps: int, seed: int
) -> Evaluation:
    """Test of a training."""
    settings: dict[str, Any] = {"steps": steps, **machine()}
    recipe = recipe_of(facts, candidates(facts.kind)[0], steps, paths, settings) | {"seed": seed}
    recipe["training"] |= {"validate_every": steps}
    if "decoding" in recipe:
        recipe |= {"decoding": {"beam_size": 1}, "evaluation": {"validation_pairs": 0}}
    train(recipe, run, overwrite=True)
    return load(run).evaluate("test")
