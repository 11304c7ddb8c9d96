"""Minimum Bayes risk: the output most similar to all others (Kumar and Byrne 2004).

The utility of an output is its mean sentence score (chrF2 or BLEU, as sacreBLEU gives them) with
every output in turn, itself included, as the reference, weighted by its probability.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from transduce.decoding.options import DecodingOptions

Utility = Literal["chrf", "bleu"]
Floats = NDArray[np.float64]
CHRF_ORDER, CHRF_BETA, BLEU_ORDER = 6, 2, 4


def least_risk(
    texts: Sequence[str], log_probs: Sequence[float], options: DecodingOptions, language: str
) -> list[tuple[int, float]]:
    """The `n_best` outputs that are most like all of them, by index, with their expected utility.
    Samples count alike, since the likelier come more often, and outputs of a beam by
    probability.

    texts: the outputs.  log_probs: natural logarithms, one for each text.  options: of decoding.
    language: code of the target language, for the metric.
    """
    assert options.minimum_risk != "none"
    weights = [1.0] * len(texts)
    if options.method == "beam":
        weights = [math.exp(log_prob - max(log_probs)) for log_prob in log_probs]
    utilities = expected_utilities(texts, weights, options.minimum_risk, language)
    distinct = {text: i for i, text in reversed(list(enumerate(texts)))}
    ranked = sorted(sorted(distinct.values()), key=lambda i: -utilities[i])
    return [(i, utilities[i]) for i in ranked[: options.n_best]]


def expected_utilities(
    texts: Sequence[str], weights: Sequence[float], utility: Utility, language: str = ""
) -> list[float]:
    """Expected score of each text, in percent, under the texts as references of any weights; BLEU's
    tokenizer goes by the code of the target language."""
    unique = list(dict.fromkeys(texts))
    index = {text: i for i, text in enumerate(unique)}
    shares = np.zeros(len(unique))
    for text, weight in zip(texts, weights, strict=True):
        shares[index[text]] += weight
    scores = chrf_of_pairs(unique) if utility == "chrf" else bleu_of_pairs(unique, language)
    expected = scores @ (shares / shares.sum())
    return [float(expected[index[text]]) for text in texts]


def chrf_of_pairs(texts: Sequence[str]) -> Floats:
    """(n, n) chrF2 of each text against each as the reference."""
    units = ["".join(text.split()) for text in texts]
    n = len(texts)
    precision, recall, orders = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    for order in range(1, CHRF_ORDER + 1):
        matches, totals = _matches([_grams(unit, order) for unit in units])
        both = (totals[:, None] > 0) & (totals[None, :] > 0)
        orders += both
        precision += np.divide(matches, totals[:, None], out=np.zeros((n, n)), where=both)
        recall += np.divide(matches, totals[None, :], out=np.zeros((n, n)), where=both)
    orders = np.maximum(orders, 1)
    precision, recall = precision / orders, recall / orders
    factor = CHRF_BETA**2
    below = factor * precision + recall
    above = (1 + factor) * precision * recall
    return 100 * np.divide(above, below, out=np.zeros((n, n)), where=below > 0)


def bleu_of_pairs(texts: Sequence[str], language: str = "") -> Floats:
    """(n, n) sentence BLEU of each text against each: exponential smoothing, effective order."""
    words = [_bleu_tokenizer(language)(text.rstrip()).split() for text in texts]
    lengths = np.array([float(len(row)) for row in words])
    n = len(texts)
    logs, orders, smoothing = np.zeros((n, n)), np.zeros((n, n)), np.ones((n, n))
    any_match = np.zeros((n, n), dtype=bool)
    for order in range(1, BLEU_ORDER + 1):
        matches, totals = _matches([_grams(row, order) for row in words])
        counted = np.broadcast_to(totals[:, None] > 0, (n, n))
        none = counted & (matches == 0)
        smoothing = np.where(none, smoothing * 2, smoothing)
        precision = np.where(none, 1 / smoothing, matches) / np.maximum(totals[:, None], 1)
        logs += np.log(precision, out=np.zeros((n, n)), where=counted)
        orders += counted
        any_match |= matches > 0
    shorter = lengths[:, None] < lengths[None, :]
    ratio = lengths[None, :] / np.maximum(lengths[:, None], 1)
    brevity = np.where(shorter, np.exp(1 - ratio), 1.0)
    return np.where(any_match, 100 * brevity * np.exp(logs / np.maximum(orders, 1)), 0.0)


def _grams(units: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(units[i:] for i in range(order)), strict=False))


def _matches(counters: Sequence[Counter[tuple[str, ...]]]) -> tuple[Floats, Floats]:
    """(n, n) n-grams that each two have in common, and (n,) how many each has."""
    columns: dict[tuple[str, ...], int] = {}
    for counter in counters:
        for gram in counter:
            columns.setdefault(gram, len(columns))
    counts = np.zeros((len(counters), len(columns)))
    for i, counter in enumerate(counters):
        counts[i, [columns[gram] for gram in counter]] = list(counter.values())
    matches = np.zeros((len(counters), len(counters)))
    for i, row in enumerate(counts):
        present = row.nonzero()[0]  # only n-grams of the text can match
        matches[i] = np.minimum(counts[:, present], row[present]).sum(1)
    return matches, counts.sum(1)


@lru_cache(maxsize=8)
def _bleu_tokenizer(language: str) -> Callable[[str], str]:
    from sacrebleu.metrics.bleu import BLEU

    from transduce.metrics.translation import bleu_tokenizer

    tokenizer: Callable[[str], str] = BLEU(tokenize=bleu_tokenizer(language)).tokenizer
    return tokenizer
