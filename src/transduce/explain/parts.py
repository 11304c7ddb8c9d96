"""The parts of an explanation: attention, steps, hypotheses, vectors, names of heads."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


Array = NDArray[np.float32]
Guess = tuple[str, float]
"""A token or a label, and its probability."""
Fate = Literal["kept", "cut", "ended", "won"]


@dataclass(frozen=True)
class Attention:
    """The weights of an attention in a pass.

    name: of the module, such as `decoder.layers.0.cross_attention`.  rows, columns: keys of
    `Explanation.sequences`.  weights: (h, t, s).  patterns: the measured pattern of each head.
    causal: each row attends to itself and to earlier columns only.
    """

    name: str
    rows: str
    columns: str
    weights: Array
    patterns: tuple[Pattern, ...]
    causal: bool = False


@dataclass(frozen=True)
class Step:
    """A step of a decoder: the token read, the token written, and its likeliest rivals."""

    read: str
    written: str
    probability: float
    guesses: tuple[Guess, ...]


@dataclass(frozen=True)
class Node:
    """A hypothesis of a search, seen at its last token.

    parent: index of the node that it continues, -1 for the root.  log_prob: cumulative.
    score: log_prob over the length penalty, plus the coverage penalty, for a hypothesis that
    ended.
    """

    parent: int
    token: str
    log_prob: float
    fate: Fate
    score: float | None = None


@dataclass(frozen=True)
class SearchTree:
    """All hypotheses kept by a search, and the best of the cut hypotheses."""

    method: Literal["beam", "sample"]
    width: int
    length_penalty: str
    alpha: float
    nodes: tuple[Node, ...]
    coverage_penalty: float = 0.0


@dataclass(frozen=True)
class Vectors:
    """Query (t, d), key (s, d) and value (s, d) of a head."""

    query: Array
    key: Array
    value: Array


@dataclass(frozen=True)
class HeadVectors:
    """Inputs of a head.

    attention: index in `Explanation.attention`.  bias: (t, s), added to the scores, for positions
    of that kind.  without_positions: the same head in a model whose positions are left out.
    """

    attention: int
    head: int
    vectors: Vectors
    bias: Array | None = None
    without_positions: Vectors | None = None


@dataclass(frozen=True)
class Stack:
    """An encoder or a decoder.

    kind: "transformer", "recurrent", "convolution", "bytenet", "text-cnn" or "memory-network".
    pre_norm: the norm stands before each sublayer, and once more after the last.
    positions: their kind; waves: (48, width) the vectors, cosines or biases of the first positions.
    """

    sequence: str
    kind: str
    n_layers: int
    d_model: int
    n_heads: int = 0
    d_head: int = 0
    pre_norm: bool = False
    context: str = ""
    positions: str = "none"
    waves: Array | None = None


@dataclass(frozen=True)
class Picture:
    """The image or the spectrogram that was read: bytes of a PNG, and its grid of patches.

    first: row of the attention that belongs to the first patch; 1 behind a class token.  sequence:
    key of `Explanation.sequences`, the positions of which are the patches.
    """

    png: bytes
    grid: tuple[int, int]
    first: int
    sequence: str = "image"


@dataclass(frozen=True)
class Feature:
    """A pooled feature of a text CNN: its winning window [start, end) of tokens, its value, and
    its weight towards the predicted label."""

    start: int
    end: int
    value: float
    weight: float


@dataclass(frozen=True)
class Span:
    """Probability of each token as the start and as the end of the answer."""

    start: tuple[float, ...]
    end: tuple[float, ...]
    answer: tuple[int, int] | None
    """First and last token of the answer."""


@dataclass(frozen=True)
class Hidden:
    """The answer when a token is hidden: guesses for a masked token, or labels without it."""

    position: int
    guesses: tuple[Guess, ...]


@dataclass(frozen=True)
class Credit:
    """Exact shares of logit(written) - logit(rival) at a step, which add up to `difference`; of an
    encoder alone, of the likeliest label, of each mask, or of the start and the end of a span.

    source, read: of each token; source_positions, read_positions: of its position, and segment.
    earlier: of tokens before those shown.  biases: of all biases.

    writes: the same difference by writer: what "embedding" and "positions" of the last token, each
    sublayer of the last stack, and "biases" behind them write straight to the logits.  heads: of
    each attention in `writes` by head, with the bias of its output last.
    """

    rival: str
    difference: float
    source: tuple[float, ...]
    source_positions: tuple[float, ...]
    read: tuple[float, ...]
    read_positions: tuple[float, ...]
    earlier: float
    biases: float
    writes: Mapping[str, float]
    heads: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class KnockOut:
    """Parts of a model to compute an answer without.

    heads: each `NAME:HEAD`, the name of an attention and the number of a head, from 1, such as
    `decoder.layers.0.cross_attention:3`.  tokens: numbers of tokens of the source, from 1.
    """

    heads: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.heads or self.tokens)

    def __str__(self) -> str:
        return ", ".join([*self.heads, *(f"token {number}" for number in self.tokens)])


NOTHING = KnockOut()


def as_guesses(names: Sequence[str], probabilities: Sequence[float]) -> tuple[Guess, ...]:
    """Names with their probabilities."""
    return tuple(zip(names, probabilities, strict=True))
