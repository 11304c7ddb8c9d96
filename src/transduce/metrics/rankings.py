"""Scores of rankings, and correlations with the scores that people gave.

With a single right answer per question all three are functions of its rank alone, counted from 1:

    hit rate at k     1 if rank <= k
    NDCG at k         1 / log2(1 + rank) if rank <= k   (Järvelin and Kekäläinen 2002)
    MRR               1 / rank

Ranks are among all candidates.  Scores among a hundred sampled candidates, as reported in much of
the literature, are far higher and may even order systems differently (Krichene and Rendle 2020).

Shape letters: n questions, v candidates.

Spearman's coefficient is Pearson's of the ranks; equal values share the mean of their ranks.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError
from transduce.support.work import chunks

Floats = NDArray[np.floating[Any]]
Scorer = Callable[[Sequence[Sequence[int]]], Floats]
"""Histories of ids -> log-probabilities (b, v) of the next item of each."""

TOGETHER = 128
"""Histories that are scored together."""
WITH_SEEN = "_with_seen"
"""Suffix of scores with items of the history among the candidates."""
UNRANKED = np.inf
"""Rank of a target that is not a candidate: it scores nothing."""


def ranks_of(scores: Floats, targets: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
    """Rank (n,) of candidate `targets` (n,) by scores (n, v), the highest first, among equal scores
    the lower number; candidates with score -inf are excluded."""
    target_scores = scores[np.arange(len(targets)), targets][:, None]
    lower_number = np.arange(scores.shape[1]) < targets[:, None]
    before = (scores > target_scores) | ((scores == target_scores) & lower_number)
    return np.where(np.isneginf(target_scores[:, 0]), UNRANKED, 1.0 + before.sum(1))


def ranking_scores(ranks: NDArray[np.float64], at: int = 10) -> dict[str, float]:
    """Hit rate and NDCG at `at`, and mean reciprocal rank, in percent, from ranks (n,).  Raises
    DataError."""
    if not len(ranks):
        raise DataError("nothing to measure: there are no rankings")
    hits = ranks <= at
    gains = np.where(hits, 1 / np.log2(1 + ranks), 0.0)
    return {
        f"hit_rate_{at}": 100 * float(hits.mean()),
        f"ndcg_{at}": 100 * float(gains.mean()),
        "mrr": 100 * float((1 / ranks).mean()),
    }


class RankingExample(NamedTuple):
    """Right item after a history, by id; an unknown item is the id of no candidate."""

    history: list[int]
    answer: int


def without_seen(log_probs: Floats, histories: Iterable[Sequence[int]]) -> Floats:
    """Log-probabilities (b, v) with -inf for the items of each history."""
    unseen = log_probs.copy()
    for row, history in zip(unseen, histories, strict=True):
        row[history] = -np.inf
    return unseen


def by_popularity(counts: NDArray[np.integer[Any]]) -> Scorer:
    """Popularity baseline, by training counts (v,) of ids."""
    with np.errstate(divide="ignore"):
        log_probs = np.log((counts / counts.sum()).astype(np.float32))
    return lambda histories: np.tile(log_probs, (len(histories), 1))


def ranking_names(at: int) -> list[str]:
    """Names of the scores of `measure_rankings`."""
    names = list(ranking_scores(np.ones(1), at))
    return ["loss", *names, *(name + WITH_SEEN for name in names)]


def measure_rankings(
    score: Scorer, examples: Iterable[RankingExample], at: int
) -> dict[str, float]:
    """Loss in nats, and ranking metrics of the right items.

    Ranks exclude items of the history; `..._with_seen` ranks all items. Items that score -inf, such
    as those unseen in training, have no rank and do not count in the loss.

    score: of the next items.  examples: histories with right items.  at: cut-off of the metrics.
    """
    by_length = sorted(examples, key=lambda example: len(example.history), reverse=True)
    losses: list[float] = []
    ranks, with_seen = [np.zeros(0)], [np.zeros(0)]
    for chunk in chunks(by_length, TOGETHER):
        histories, answers = [e.history for e in chunk], np.array([e.answer for e in chunk])
        log_probs, right = score(histories), (range(len(chunk)), answers)
        losses += (-log_probs[right][np.isfinite(log_probs[right])]).tolist()
        with_seen.append(ranks_of(log_probs, answers))
        unseen = without_seen(log_probs, histories)
        unseen[right] = log_probs[right]  # seen or not, it is right
        ranks.append(ranks_of(unseen, answers))
    others = ranking_scores(np.concatenate(with_seen), at)
    return {
        **({"loss": sum(losses) / len(losses)} if losses else {}),
        **ranking_scores(np.concatenate(ranks), at),
        **{name + WITH_SEEN: value for name, value in others.items()},
    }


def correlation_scores(predicted: Floats, right: Floats) -> dict[str, float]:
    """Spearman's and Pearson's coefficients of two arrays (n,), times 100; 0 if an array has
    equal values alone.  Raises DataError for fewer than two items."""
    if len(right) < 2:
        raise DataError(f"a correlation needs two items or more, but there are {len(right)}")
    return {
        "spearman": 100 * pearson(ranks(predicted), ranks(right)),
        "pearson": 100 * pearson(predicted, right),
    }


def pearson(a: Floats, b: Floats) -> float:
    """Pearson's coefficient of two arrays (n,); 0 where all values of an array are equal."""
    a, b = a.astype(np.float64) - a.mean(), b.astype(np.float64) - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale else 0.0


def ranks(values: Floats) -> NDArray[np.float64]:
    """Rank (n,) of each value from 0; equal values have their mean."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: NDArray[np.float64] = (ends - (counts + 1) / 2)[group]
    return means
