"""Choice of the settings of a training, from a measured table.

`table.json` holds candidates by kind of task, and scores of candidates on sets of data, measured by
`benchmarks/make_table.py`.  A row has the pairs, and the work: the target tokens that the first
candidate of its kind processes in the same time, whatever the machine.
"""

import functools
import importlib.resources
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transduce.engine.pair_shape import unsupported_settings
from transduce.errors import SettingError
from transduce.recipes import parse_recipe

Kind = Literal["translation", "spelling", "classification"]
Destination = Literal["", "page", "server", "anywhere"]
"""Place that a model is made for: pages, the native engine's server, or both and ONNX."""
MINUTES = (10, 40, 120, 480, 1440)
"""Minutes of a forecast, the first three, and of advice."""
START = "start"
"""Candidate that goes on from the run of `--start`."""
FINE_TUNING: Mapping[str, Any] = {"optimizer": {"kind": "adam"}, "peak": 2e-4}
MAX_WARMUP = 400
VALIDATIONS = 5
"""Validations of a training, about."""
VALIDATED = 200
"""Pairs decoded at each validation."""
GROWTH = 3.0
"""Factor above the measured work from which the table says nothing: then the largest candidate is
taken that makes so many steps."""
PLAN_LEAST_STEPS = 2_500
GRID = 33
"""Works at which the scores of the table are made monotone, from the least to the greatest."""
Group = tuple[str, int, float]
"""Rows of the table with a set, its pairs and the work."""
BYTES, TEXT_OF_A_PIECE = 260, 150
"""Tokens of bytes and special ones, and characters of the text, at least, for each further piece of
the vocabulary."""
TABLE_ITEMS = 400
"""Test items of the scores of the table."""
LETTERS = 1_000
"""Different characters above which they are tokens themselves, as in Chinese."""


@dataclass(frozen=True)
class DataFacts:
    """Facts of a set of data that decide the settings.

    source_length, target_length: mean characters.  characters: different ones of source and target.
    symbols: targets are symbols between blanks.
    joint: both sides are written in the same letters.  longest: characters of the 99th percentile.
    """

    kind: Kind
    pairs: int
    source_length: float
    target_length: float
    longest: int
    symbols: bool = False
    joint: bool = True
    characters: Sequence[int] = (100, 100)
    source_language: str = ""
    target_language: str = ""

    @property
    def target_tokens(self) -> float:
        """Target tokens of an epoch, about, the end of each text included."""
        if self.kind == "translation":
            return self.pairs * (self.target_length / 3.5 + 1)
        if self.kind == "classification":
            return self.pairs  # its log counts texts
        return self.pairs * (self.target_length / (2 if self.symbols else 1) + 1)


@functools.cache
def measured_table() -> Mapping[str, Any]:
    """Candidates by kind, and measured scores."""
    file = importlib.resources.files(__package__) / "table.json"
    return dict(json.loads(file.read_text(encoding="utf-8")))


def candidates(kind: Kind) -> list[str]:
    """Names of the candidates of a kind, the first of which is the unit of work."""
    return list(measured_table()["candidates"][kind])


def ranked(facts: DataFacts, work: float, without: str = "") -> list[tuple[str, float]]:
    """Candidates and the points that each is expected to lose against the best, best first: the
    mean share of the best score that it lost in the groups of the table, of the mean best score, as
    differences in points grow with the score.

    work: target tokens that the first candidate can process.  without: set left out of the table.
    """
    rows = [
        r for r in measured_table()["measured"] if r["kind"] == facts.kind and r["set"] != without
    ]
    groups: dict[Group, dict[str, float]] = {}
    for row in rows:
        group = groups.setdefault((row["set"], row["pairs"], row["work"]), {})
        group[row["candidate"]] = row["score"]
    lost = {name: [0.0, 1e-12] for name in candidates(facts.kind)}
    weights = _weights(facts, groups, math.log(max(work, 1)))
    level = 0.0
    for weight, scores in zip(weights.tolist(), groups.values(), strict=True):
        best = max(scores.values())
        level += weight * best
        for name, score in scores.items():
            lost[name][0] += weight * (best - score) / max(best, 1e-9)
            lost[name][1] += weight
    level /= float(weights.sum()) or 1.0
    known = {n: level * total / weight for n, (total, weight) in lost.items() if weight > 1e-9}
    order = sorted(known.items(), key=lambda pair: pair[1])
    if work < GROWTH * max((row["work"] for row in rows), default=0.0):
        return [*order, *((name, math.inf) for name in lost if name not in known)]
    every = measured_table()["candidates"][facts.kind]
    smallest, *larger = every
    fitting = [n for n in larger if _is_enough(facts, work / every[n]["cost"], every[n])]
    names = [*fitting[::-1], smallest, *(name for name in larger if name not in fitting)]
    return [(name, math.inf) for name in names]


def _is_enough(facts: DataFacts, tokens: float, candidate: Mapping[str, Any]) -> bool:
    """True for pairs, and target tokens to process, that are enough for a candidate."""
    epochs = tokens / facts.target_tokens
    letters = max(facts.source_length, facts.target_length)
    longer = letters / (1 if facts.kind == "spelling" else 3.5) + 1  # in tokens
    steps = epochs * facts.pairs * longer / candidate["batch_tokens"]
    return bool(facts.pairs >= candidate.get("least_pairs", 0) and steps >= PLAN_LEAST_STEPS)


def expected_score(facts: DataFacts, work: float) -> tuple[float, str]:
    """Score of the best candidate in the rows of the table near these data and work, and the
    nearest set; zero and an empty name without rows.  More work never lowers the score; below the
    least work of the table it falls in proportion.

    Sets differ in difficulty as well as in work: means weighted by distance may fall where a hard
    set was given more.  They are made monotone by isotonic regression over the works of the table.

    work: as of `ranked`.
    """
    best: dict[Group, float] = {}
    for row in measured_table()["measured"]:
        if row["kind"] == facts.kind:
            group = row["set"], row["pairs"], row["work"]
            best[group] = max(best.get(group, 0.0), row["score"])
    if not best:
        return 0.0, ""
    works = [group[2] for group in best]
    grid = np.linspace(math.log(min(works)), math.log(max(works)), GRID)
    scores = np.array(list(best.values()))
    means = [float(np.average(scores, weights=_weights(facts, best, point))) for point in grid]
    log_work = math.log(max(work, 1))
    nearest = [*best][int(_weights(facts, best, log_work).argmax())]
    share = math.exp(min(log_work - float(grid[0]), 0.0))
    return share * float(np.interp(log_work, grid, _isotonic(means))), nearest[0]


def _weights(facts: DataFacts, groups: Iterable[Group], log_work: float) -> NDArray[np.float64]:
    """Weights of groups by their distance from these data and work; 1 for the nearest."""
    squares = np.array(
        [
            math.log(facts.pairs / pairs) ** 2 + (log_work - math.log(done)) ** 2
            for _, pairs, done in groups
        ]
    )
    return np.asarray(np.exp((squares.min(initial=np.inf) - squares) / 2))


def _isotonic(values: Sequence[float]) -> list[float]:
    """Least-squares sequence that never falls, by pooling adjacent violators."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pool = value, 1
        while pools and pools[-1][0] > pool[0]:
            mean, count = pools.pop()
            total = count + pool[1]
            pool = (mean * count + pool[0] * pool[1]) / total, total
        pools.append(pool)
    return [mean for mean, count in pools for _ in range(count)]


def suited(facts: DataFacts, names: Sequence[str], destination: Destination) -> list[str]:
    """Candidates that can go to a destination.  Raises SettingError if there are none."""
    if destination == "page" and facts.kind == "classification":
        raise SettingError("--for page: pages hold no models of labels; give --for server")
    portable = [name for name in names if not destination or is_portable(facts, name)]
    if not portable:
        raise SettingError(f"--for {destination}: no candidate for {facts.kind} can go there")
    return portable


def preferred(
    facts: DataFacts, order: Sequence[tuple[str, float]], destination: Destination = ""
) -> list[str]:
    """Candidates of an order, best first, of which one that the native engine computes, pages and
    exports can hold goes before another unless it loses more than the interval of the table; with
    a destination, those that can go there alone."""
    margin = interval(50.0, TABLE_ITEMS)
    return sorted(
        suited(facts, [name for name, _ in order], destination),
        key=lambda name: dict(order)[name] - (margin if is_portable(facts, name) else 0.0),
    )


def interval(score: float, items: int) -> float:
    """Half of the 95 % interval of a score in percent, as of a share of right items."""
    share = min(max(score / 100, 0.0), 1.0)
    return 196 * math.sqrt(share * (1 - share) / max(items, 1))


def is_portable(facts: DataFacts, candidate: str) -> bool:
    """True for a candidate that the native engine computes, which pages and exports need too."""
    paths = {"train": "train.jsonl", "valid": "valid.jsonl"}
    model: Any = parse_recipe(recipe_of(facts, candidate, 100, paths, {}), candidate).model
    return next(unsupported_settings(model), None) is None


def width_of(kind: Kind, candidate: str) -> int:
    """Width of a candidate's model."""
    return int(measured_table()["candidates"][kind][candidate]["model"]["d_model"])


def step_cost(kind: Kind, candidate: str) -> float:
    """Time for a step of a candidate, relative to the first."""
    first, chosen = (
        measured_table()["candidates"][kind][name] for name in (candidates(kind)[0], candidate)
    )
    return float(chosen["cost"] * chosen["batch_tokens"] / first["batch_tokens"])


def recipe_of(
    facts: DataFacts,
    candidate: str,
    steps: int,
    paths: Mapping[str, str],
    training: Mapping[str, Any],
) -> dict[str, Any]:
    """Recipe of a candidate.

    steps: about, for schedule and averages.  paths: of the splits, as JSON lines of source and
    target.  training: further settings, such as minutes.
    """
    chosen = measured_table()["candidates"][facts.kind][candidate]
    stacks = ("encoder",) if facts.kind == "classification" else ("encoder", "decoder")
    model = {name: value for name, value in chosen["model"].items() if name not in stacks}
    for stack in stacks:
        model[stack] = {**chosen["model"].get(stack, {}), "dropout": chosen["dropout"]}
        if "n_heads" in chosen:
            model[stack]["n_heads"] = chosen["n_heads"]
            if facts.kind != "classification":
                model[stack] |= {"positions": "rotary", "norm_order": "post"}
    every = max(steps // VALIDATIONS, 10)
    settings = {
        "task": "classification" if facts.kind == "classification" else "translation",
        "data": {split: _plan_split(facts, path) for split, path in paths.items()},
        "model": model,
        "training": {
            "batch_tokens": chosen["batch_tokens"],
            "label_smoothing": 0.1,
            "clip_norm": 1.0,
            "ema": round(min(max(1 - 20 / max(steps, 1), 0.9), 0.9995), 5),
            "validate_every": every,
            "log_every": max(every // 10, 1),
            "keep_last": 1,
            "optimizer": {"kind": chosen["optimizer"]},
            "schedule": {
                "kind": "cosine",
                "peak": chosen["peak"],
                "warmup_steps": min(max(steps // 10, 1), MAX_WARMUP),
            },
            **training,
        },
    }
    return settings | _of_kind(facts, chosen, settings)


def recipe_from(
    facts: DataFacts,
    start: str,
    steps: int,
    paths: Mapping[str, str],
    training: Mapping[str, Any],
) -> dict[str, Any]:
    """Recipe that fine-tunes a run, for the other parameters of `recipe_of`.

    start: run directory, which gives model and tokenizers.
    """
    settings = recipe_of(facts, candidates(facts.kind)[0], steps, paths, training)
    for section in ("model", "text", "head"):
        settings.pop(section, None)
    tuning = settings["training"]
    tuning["optimizer"] = FINE_TUNING["optimizer"]
    tuning["schedule"] = tuning["schedule"] | {"peak": FINE_TUNING["peak"]}
    return settings | {"fine_tune": {"run": start}}


def _plan_split(facts: DataFacts, path: str) -> dict[str, Any]:
    names = ("text", "label") if facts.kind == "classification" else ("source", "target")
    return {"kind": "jsonl", "path": path, **dict(zip(names, ("source", "target"), strict=True))}


def _of_kind(
    facts: DataFacts, chosen: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Sections of one kind of task."""
    if facts.kind == "classification":
        labelled = {"tokenizer": {"kind": "bpe", "lowercase": True}, "token_dropout": 0.1}
        training = {**settings["training"], "select_by": "accuracy"}
        limit = {"max_length": min(max(facts.longest // 2, 64), 400)}
        return {"text": labelled | limit, "head": {"dropout": 0.5}, "training": training}
    model = settings["model"] | ({"init": "normal"} if "n_heads" in chosen else {})
    text = _tokenizers(facts, chosen)
    model["tie"] = "two-way" if "target" in text else "three-way"
    by_characters = any(side["kind"] == "characters" for side in text.values())
    longest = facts.longest + 16 if by_characters else max(facts.longest // 2, 96)
    languages = {"source": facts.source_language, "target": facts.target_language}
    return {
        "data": {**settings["data"], "filters": {"max_length": min(max(longest, 32), 256)}},
        "text": text,
        "model": model,
        "training": settings["training"],
        "decoding": {"beam_size": 4, "length_penalty": "mean"},
        "evaluation": {"validation_pairs": validated(settings["training"])},
        "languages": {side: code for side, code in languages.items() if code},
    }


def validated(training: Mapping[str, Any]) -> int:
    """Pairs decoded at each validation: few for a training of few minutes."""
    seconds = 60 * training.get("minutes", math.inf)
    return int(min(max(2 * seconds, VALIDATED / 5), VALIDATED))


def _tokenizers(facts: DataFacts, chosen: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Tokenizers of both sides, of the source alone if they are the same."""
    if facts.kind == "spelling":
        text = {"source": {"kind": "characters"}}
        if facts.symbols or not facts.joint:
            text["target"] = {"kind": "symbols" if facts.symbols else "characters"}
        return text
    lengths: Sequence[float] = (facts.source_length, facts.target_length)
    characters = facts.characters
    if facts.joint:
        lengths, characters = [sum(lengths)], [sum(characters)]
    text = {}
    for side, length, count in zip(("source", "target"), lengths, characters, strict=False):
        pieces = min(chosen["pieces"], int(facts.pairs * length / TEXT_OF_A_PIECE))
        subwords = {"kind": "unigram", "size": BYTES + count + pieces}
        text[side] = {"kind": "characters"} if count > LETTERS else subwords
    return text
