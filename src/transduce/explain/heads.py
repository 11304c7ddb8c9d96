"""Names for attention heads, by measurement of their mean weights."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

PatternName = Literal[
    "previous token",
    "current token",
    "next token",
    "first token",
    "punctuation",
    "focused",
    "spread",
    "mixed",
    "single token",
]
"""Names in reports, pages and JSON; positions are named as by Clark et al. (2019)."""
Weights = NDArray[np.floating[Any]]

NAMED_FROM = 0.4
"""Mean weight from which a place gives a head its name."""
FOCUSED_FROM = 0.6
SPREAD_FROM = 0.85
MARKS = ("<s>", "</s>", "<pad>")


class Pattern(NamedTuple):
    """The pattern of a head, and its strength: a mean weight, or for "spread" the entropy as a
    share of the greatest possible entropy."""

    name: PatternName
    value: float


def head_pattern(
    weights: Weights, columns: Sequence[str], itself: bool, causal: bool = False
) -> Pattern:
    """The strongest pattern of a head with weights (t, s) over `columns`.

    itself: rows and columns are the same sequence, so that neighbours are defined.  Rows with
    a single visible column are left out.
    """
    t, s = weights.shape
    visible = np.minimum(np.arange(t) + 1, s) if causal else np.full(t, s)
    rows = np.flatnonzero(visible > 1)
    if not len(rows):
        return Pattern("single token", 1.0)
    places: dict[PatternName, float] = {}
    if itself:
        shifts: dict[PatternName, int] = {"previous token": -1, "current token": 0, "next token": 1}
        for name, shift in shifts.items():
            there = rows[(rows + shift >= 0) & (rows + shift < s)]
            if len(there) and not (causal and shift > 0):
                places[name] = float(weights[there, there + shift].mean())
    places["first token"] = float(weights[rows, 0].mean())
    marks = [j for j, token in enumerate(columns) if j and _is_mark(token)]
    if marks:
        places["punctuation"] = float(weights[rows][:, marks].sum(1).mean())
    best = max(places, key=lambda name: places[name])
    if places[best] >= NAMED_FROM:
        return Pattern(best, places[best])
    spread = _entropy_share(weights[rows], visible[rows])
    if spread >= SPREAD_FROM:
        return Pattern("spread", spread)
    peak = float(weights[rows].max(1).mean())
    return Pattern("focused" if peak >= FOCUSED_FROM else "mixed", peak)


def sharpness(weights: Weights) -> float:
    """Mean greatest weight of a row of weights (t, s)."""
    return float(weights.max(1).mean()) if weights.size else 0.0


def _is_mark(token: str) -> bool:
    """An end or beginning of sentence, or nothing but punctuation."""
    text = token.strip("▁Ġ ")
    return token in MARKS or (text != "" and all(unicodedata.category(c)[0] in "PS" for c in text))


def _entropy_share(weights: Weights, visible: NDArray[np.intp]) -> float:
    """Mean entropy of rows as a share of log of the columns that each could look at."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(weights > 0, -weights * np.log(weights), 0.0)
    return float((terms.sum(1) / np.log(visible)).mean())
