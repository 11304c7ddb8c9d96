"""The alignment error rate of Och and Ney (2003), with its precision and recall.

With A the links of a system, S the sure and P the possible links of a person (S within P):

    precision = |A ∩ P| / |A|
    recall    = |A ∩ S| / |S|
    AER       = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

All are computed from sums over a corpus.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import numpy as np

from transduce.errors import DataError
from transduce.metrics.metric import Statistics
from transduce.text.pharaoh import Link


def alignment_statistics(
    predicted: Iterable[Set[Link]], gold: Iterable[tuple[Set[Link], Set[Link]]]
) -> Statistics:
    """(n, 4) for each pair |A|, |S|, |A ∩ S| and |A ∩ P|; gold has (S, P).  Raises DataError if the
    numbers of pairs differ or are zero."""
    predicted, gold = list(predicted), list(gold)
    if len(predicted) != len(gold):
        raise DataError(
            f"{len(predicted)} lines of links but {len(gold)} lines of gold links; give one line "
            "per pair in both"
        )
    if not gold:
        raise DataError("nothing to measure: there are no gold links")
    rows = [
        (len(links), len(sure), len(links & sure), len(links & (possible | sure)))
        for links, (sure, possible) in zip(predicted, gold, strict=True)
    ]
    return np.array(rows, dtype=np.float64)


def alignment_scores(sums: Statistics) -> dict[str, float]:
    """AER, precision and recall in percent, from the sum (4,) of the statistics.  Raises
    DataError."""
    links, sure, right_sure, right_possible = (float(x) for x in sums)
    if not links + sure:
        raise DataError("nothing to measure: neither side has a link")
    return {
        "aer": 100 * (1 - (right_sure + right_possible) / (links + sure)),
        "precision": 100 * right_possible / links if links else 100.0,
        "recall": 100 * right_sure / sure if sure else 100.0,
    }
