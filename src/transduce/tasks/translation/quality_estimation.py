"""Quality estimation without a reference: confidence by token and line, calibrated on held-out
pairs.

The outputs are scored again by forced decoding, so that the values are model probabilities over the
whole vocabulary, independent of the search.

Ridge regression predicts sentence chrF from a few confidence features, and isotonic regression
calibrates the prediction: outputs estimated at 60 have a mean chrF of 60.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError, RunError
from transduce.metrics.measure import make_metric
from transduce.metrics.rankings import pearson, ranks
from transduce.support.files import read_json
from transduce.tasks.translation.scoring import target_log_probs
from transduce.tasks.translation.text_translator import Translation
from transduce.tasks.translation.translator import Translator
from transduce.training.weights import sha256_of, write_text


class Confidence(NamedTuple):
    """Model probabilities of an output.

    token_log_probs: natural logarithm of each token's probability, given all before it.
    end_log_probs:   log-probabilities of the end, for each translated piece of the source.
    source_length:   tokens of the source.
    """

    token_log_probs: tuple[float, ...]
    end_log_probs: tuple[float, ...]
    source_length: int

    @property
    def mean_log_prob(self) -> float:
        """Over all tokens, the ends included."""
        every = (*self.token_log_probs, *self.end_log_probs)
        return sum(every) / len(every)

    @property
    def mean(self) -> float:
        """The geometric mean of the probabilities of all tokens, the ends included."""
        return math.exp(self.mean_log_prob)

    def fields(self) -> dict[str, Any]:
        """Fields of a JSON record."""
        rounded = [round(log_prob, 6) for log_prob in self.token_log_probs]
        return {"confidence": round(self.mean, 6), "token_log_probs": rounded}


def confidences(
    translator: Translator, texts: Sequence[str], translations: Sequence[Translation]
) -> list[Confidence | None]:
    """Confidence of each translation of a text, in order; None for blank texts.

    translator: with its model.  translations: one for each text.
    """
    pieces: list[tuple[int, list[int], list[int]]] = []  # (text, source ids, target ids)
    openings: list[int] = []  # ids before the target
    lengths = [len(ids) for ids in translator.source.encode_batch(list(texts))]
    for i, (text, translation) in enumerate(zip(texts, translations, strict=True)):
        if translation.candidates:
            targets = translation.candidates[0].parts
            for (source, opening), target in zip(
                translator.opened_pieces(text), targets, strict=True
            ):
                pieces.append((i, translator.source.as_source(source), [*opening, *target]))
                openings.append(len(opening))
    log_probs = target_log_probs(
        translator.model, [(source, target) for _, source, target in pieces]
    )
    by_text: dict[int, list[list[float]]] = {}
    for (i, _, _), before, of_piece in zip(pieces, openings, log_probs, strict=True):
        by_text.setdefault(i, []).append(of_piece[before:])
    return [_joined(by_text.get(i), length) for i, length in enumerate(lengths)]


def _joined(parts: list[list[float]] | None, source_length: int) -> Confidence | None:
    if parts is None:
        return None
    tokens = tuple(log_prob for part in parts for log_prob in part[:-1])
    return Confidence(tokens, tuple(part[-1] for part in parts), source_length)


Floats = NDArray[np.float64]

QUALITY = "quality.json"
FEATURES = (
    "mean log-probability",
    "least log-probability",
    "mean probability",
    "length ratio",
    "source length",
)
RIDGE = 1.0
FEWEST = 20
"""From fewer pairs nothing can be learnt."""


class QualityModel(NamedTuple):
    """A fitted estimate.

    mean, scale, weights: (f,) of the features.  knots: (2, k) from weighed sums, ascending, to
    chrF in percent, never falling.
    """

    mean: Floats
    scale: Floats
    weights: Floats
    intercept: float
    knots: Floats

    def estimate(self, confidences: Sequence[Confidence | None]) -> list[float]:
        """chrF to expect, in percent; 0 where there is no output."""
        there = [c for c in confidences if c is not None]
        estimates = iter(self._bent(features_of(there)).tolist() if there else [])
        return [0.0 if c is None else float(next(estimates)) for c in confidences]

    def _bent(self, features: Floats) -> Floats:
        # row by row, as a matrix product would round by the number of rows
        sums = ((features - self.mean) / self.scale * self.weights).sum(1) + self.intercept
        bent: Floats = np.interp(sums, *self.knots)
        return bent


class Correlation(NamedTuple):
    """Correlation of estimates with scores."""

    pearson: float
    spearman: float


class QualityEstimator:
    """Confidence of a translator, and its calibrated quality estimate if calibrated."""

    def __init__(self, translator: Translator, quality: QualityModel | None) -> None:
        self.translator = translator
        self.quality = quality

    def fields(
        self, texts: Sequence[str], translations: Sequence[Translation]
    ) -> list[dict[str, Any]]:
        """Fields of a JSON record for each translation; none for blank texts."""
        known = confidences(self.translator, texts, translations)
        records = [{} if confidence is None else confidence.fields() for confidence in known]
        if self.quality is not None:
            for fields, estimate in zip(records, self.quality.estimate(known), strict=True):
                if fields:
                    fields["quality"] = round(estimate, 2)
        return records


def features_of(confidences: Sequence[Confidence]) -> Floats:
    """(n, f), as `FEATURES` names them."""
    rows = []
    for c in confidences:
        every = (*c.token_log_probs, *c.end_log_probs)
        probabilities = [math.exp(log_prob) for log_prob in every]
        ratio = math.log((len(c.token_log_probs) + 1) / (c.source_length + 1))
        length = math.log(c.source_length + 1)
        mean = sum(probabilities) / len(every)
        rows.append((c.mean_log_prob, min(every), mean, ratio, length))
    return np.array(rows, dtype=np.float64)


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
    """(n,) chrF of each item by itself, in percent."""
    metric = make_metric("chrf")
    return np.array([metric.score(row) for row in metric.statistics(hypotheses, references)])


def fit_quality(confidences: Sequence[Confidence], scores: Floats) -> QualityModel:
    """The estimate that fits scores (n,) best.  Raises DataError for fewer than `FEWEST`."""
    if len(confidences) < FEWEST:
        raise DataError(
            f"calibration needs at least {FEWEST} pairs with an output, not {len(confidences)}"
        )
    features = features_of(confidences)
    mean, scale = features.mean(0), np.maximum(features.std(0), 1e-9)
    x = (features - mean) / scale
    intercept = float(scores.mean())
    gram = x.T @ x + RIDGE * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, x.T @ (scores - intercept))
    knots = isotonic(x @ weights + intercept, scores)
    return QualityModel(mean, scale, weights, intercept, knots)


def isotonic(x: Floats, y: Floats) -> Floats:
    """(2, k) knots of the non-decreasing function with the least squares, by pooling adjacent
    violators (Ayer et al. 1955); each pool counts as a point at its mean."""
    order = np.argsort(x, kind="stable")
    pools: list[list[float]] = []  # [sum of x, sum of y, count]
    for a, b in zip(x[order].tolist(), y[order].tolist(), strict=True):
        pools.append([a, b, 1.0])
        while len(pools) > 1 and pools[-2][1] * pools[-1][2] >= pools[-1][1] * pools[-2][2]:
            last = pools.pop()
            pools[-1] = [p + q for p, q in zip(pools[-1], last, strict=True)]
    return np.array([[p[0] / p[2] for p in pools], [p[1] / p[2] for p in pools]])


def correlation(estimates: Sequence[float], scores: Floats) -> Correlation:
    """Pearson correlation of the values, and of their ranks (Spearman); 0 if a side is
    constant."""
    a, b = np.asarray(estimates, dtype=np.float64), scores
    return Correlation(pearson(a, b), pearson(ranks(a), ranks(b)))


def save_quality(quality: QualityModel, run: Path, facts: dict[str, Any]) -> None:
    """Keep it in the run directory, with facts about how it was made.

    Raises RunError when it cannot be written.
    """
    content = {
        "metric": "chrf",
        "weights_sha256": sha256_of(run / "weights.safetensors"),
        "features": FEATURES,
        **{name: getattr(quality, name).tolist() for name in ("mean", "scale", "weights", "knots")},
        "intercept": quality.intercept,
        **facts,
    }
    write_text(run / QUALITY, json.dumps(content, indent=1) + "\n")


def load_quality(run: Path) -> QualityModel | None:
    """Quality estimator of a run directory, or None. Raises RunError if it is damaged or belongs to
    other weights."""
    path = run / QUALITY
    if not path.is_file():
        return None
    try:
        content = read_json(path)
        names = ("mean", "scale", "weights", "knots")
        mean, scale, weights, knots = (np.array(content[n], dtype=np.float64) for n in names)
        whole = tuple(content["features"]) == FEATURES
        whole = whole and mean.shape == scale.shape == weights.shape == (len(FEATURES),)
        whole = whole and knots.ndim == 2 and len(knots) == 2 and knots.size > 0
        quality = QualityModel(mean, scale, weights, float(content["intercept"]), knots)
        made_of = content["weights_sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise RunError(f"{path} is damaged; create it again with transduce calibrate {run}")
    if made_of != sha256_of(run / "weights.safetensors"):
        raise RunError(
            f"{path} is for other weights; create it again with transduce calibrate {run}"
        )
    return quality
