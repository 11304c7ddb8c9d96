"""Short trainings: the speed of this machine, and the price of the filters of `transduce
doctor`.

DIRECTORY/prices.json   the data, and the outputs of each training: the same command goes on
"""

import functools
import hashlib
import itertools
import json
import logging
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from transduce.data.encoded import Pair
from transduce.data.pairs import write_pairs
from transduce.errors import DataError, RunError
from transduce.examination.corpora import Sample, folded
from transduce.examination.examine import Examined
from transduce.loading import load
from transduce.making.data import LEAST_SCORE, PHRASE, facts_of
from transduce.making.plan import DataFacts, Kind, candidates, recipe_of, width_of
from transduce.metrics.measure import make_metric
from transduce.metrics.metric import bootstrap_over_runs
from transduce.nn.kernels import restored_threads, slow_bf16_hint
from transduce.runs.training import train
from transduce.support.work import available_cores
from transduce.tasks.evaluation import Evaluation
from transduce.tasks.training import find_device
from transduce.training.log import read_curves
from transduce.training.weights import write_text

TIMED_PAIRS, VALID_PAIRS = 2_000, 50
TRIAL_STEPS = 10, 40
"""Steps that are timed, in few seconds and in more than `SHORT_SECONDS`."""
SHORT_SECONDS = 10.0
TOKENS, TIMED_SECONDS, WORTH = 512, 1.0, 0.7
"""Tokens of a round in which one thread and all are timed; seconds of all rounds, in which other
processes show, as threads wait for those that lost their core; and the time of all, relative to
one, up to which they are used."""


@functools.cache
def machine(kind: Kind, candidate: str) -> dict[str, Any]:
    """Settings of training of a candidate for this machine: precision, and threads."""
    device = find_device("auto")
    if device.type != "cpu":
        return {}
    precision = {"precision": "bf16"} if slow_bf16_hint(device) else {}
    width = width_of(kind, candidate)
    layer = torch.nn.Linear(width, 4 * width)
    batch = torch.ones(TOKENS, width)
    counts = (1, available_cores())
    with restored_threads(), torch.autocast("cpu", torch.bfloat16, enabled=bool(precision)):
        single = every = 0.0
        for count in counts:
            _seconds(layer, batch, count)  # starts its threads
        while counts[1] > 1 and single + every < TIMED_SECONDS:
            single += _seconds(layer, batch, 1)
            every += _seconds(layer, batch, counts[1])
    return {"threads": counts[every < WORTH * single], **precision}


def _seconds(layer: torch.nn.Module, batch: torch.Tensor, threads: int) -> float:
    torch.set_num_threads(threads)
    began = time.perf_counter()
    layer(batch).sum().backward()
    return time.perf_counter() - began


def tokens_of_a_step(run: Path) -> int:
    """Target tokens of a step, from the log of a run."""
    before, last = read_curves(run).train[-2:]
    spent = float(last["seconds"] - before["seconds"]) * float(last["tokens_per_second"])
    return round(spent / int(last["step"] - before["step"]))


def tokens_per_second(
    facts: DataFacts,
    paths: Mapping[str, str],
    directory: Path,
    seconds: float,
) -> tuple[float, int, float]:
    """Target tokens a second, those of a step, and seconds beside the steps, of a short training of
    the first candidate.

    paths: of the splits; the first training pairs are used.  directory: to make and delete.
    seconds: to spend, about.
    """
    directory.mkdir(parents=True, exist_ok=True)
    splits = {}
    for split, most in (("train", TIMED_PAIRS), ("valid", VALID_PAIRS)):
        sample = directory / f"{split}.jsonl"
        with Path(paths[split]).open("rb") as file:
            sample.write_bytes(b"".join(itertools.islice(file, most)))
        splits[split] = str(sample.resolve())
    steps = TRIAL_STEPS[seconds > SHORT_SECONDS]
    first = candidates(facts.kind)[0]
    timed = machine(facts.kind, first) | {"steps": steps}
    recipe = recipe_of(facts, first, steps, splits, timed)
    recipe["training"] |= {"validate_every": steps, "log_every": 2}
    if "evaluation" in recipe:
        recipe["evaluation"] = {"validation_pairs": 0}
    began = time.monotonic()
    run, _ = train(recipe, directory / "run", overwrite=True)
    whole = time.monotonic() - began
    rates = sorted(row["tokens_per_second"] for row in read_curves(run).train[1:])
    step_tokens = tokens_of_a_step(run)
    shutil.rmtree(directory)
    rate = float(rates[len(rates) // 2])
    return rate, step_tokens, max(whole - steps * step_tokens / max(rate, 1e-9), 0.0)


logger = logging.getLogger("transduce")

WHOLE, ANY = "", "any fault"
"""Trainings on all pairs, and on those without a fault."""
UNPRICED = ("empty", "leak")
"""Faults of pairs that no training here has: blank ones, and those with the source of a test."""
PRICE_ROUNDS = 3
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
        each = (1 - 2 * PACE_SHARE) * seconds / PRICE_ROUNDS / len(kinds) - OVERHEAD
        prices.steps = max(int(each * rate / tokens), LEAST_STEPS)
    last = 0.0
    for seed, kind in ((seed, kind) for seed in range(1, PRICE_ROUNDS + 1) for kind in kinds):
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
    facts: DataFacts, paths: Mapping[str, str], run: Path, steps: int, seed: int
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
