"""Word alignments from attention weights, and the alignment error rate of Och and Ney (2003).

With A the links of a system, S the sure and P the possible links of a person (S within P):

    precision = |A ∩ P| / |A|
    recall    = |A ∩ S| / |S|
    AER       = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)

All are computed from sums over a corpus.
"""

from collections.abc import Iterable, Set
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError
from transduce.metrics.metric import Statistics
from transduce.text.alignment import Link


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


Symmetry = Literal["intersection", "union", "grow-diag"]

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def most_attended(weights: NDArray[np.floating[Any]]) -> set[Link]:
    """(source, target) for each target, from weights (t, s): its highest weight."""
    if not weights.shape[1]:
        return set()
    return {(int(source), target) for target, source in enumerate(weights.argmax(1))}


def attended_above(weights: NDArray[np.floating[Any]], threshold: float) -> set[Link]:
    """(source, target) for each weight above the threshold."""
    targets, sources = (weights > threshold).nonzero()
    return set(zip(sources.tolist(), targets.tolist(), strict=True))


def symmetrised(forward: Set[Link], backward: Set[Link], method: Symmetry) -> set[Link]:
    """Combine the alignments of two directions, both as (source, target).

    grow-diag (Koehn et al. 2003): starting from the intersection, adds links of the union next to
    existing links, diagonally too, as long as they reach a unit without a link.

    forward, backward: links of the two directions.  method: "intersection", "union" or "grow-diag".
    """
    both, either = set(forward & backward), forward | backward
    if method == "intersection":
        return both
    if method == "union":
        return set(either)
    sources, targets = {s for s, _ in both}, {t for _, t in both}
    waiting = sorted(both)
    while waiting:  # each link is grown from once, in the order that they came
        came: list[Link] = []
        for source, target in waiting:
            for down, right in _NEIGHBOURS:
                link = source + down, target + right
                if link in both or link not in either:
                    continue
                if link[0] not in sources or link[1] not in targets:
                    both.add(link)
                    sources.add(link[0])
                    targets.add(link[1])
                    came.append(link)
        waiting = came
    return both
