"""Links from attention weights, and an alignment from two directions."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from transduce.text.pharaoh import Link

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
