"""Scores of the outputs of a made run: of each item, of all, against chance, and of more data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from transduce.make.plan import Kind, interval
from transduce.metrics.measure import make_metric
from transduce.metrics.significance import paired_bootstrap
from transduce.tasks.evaluation import Evaluation

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
    """Points between two models on the same items, and their 95 % interval over the items."""
    metric = make_metric(MAIN[kind], after.language)
    found = paired_bootstrap(metric, before.hypotheses, after.hypotheses, after.references)
    low, high = sorted((found.low, found.high))
    return round(found.difference, 1), round(low, 1), round(high, 1)
