"""What a search holds: hypotheses still growing, and those that have finished.

Shape letters beside those of `transduce.sequence`:

    n  sentences that the search began with
    l  sentences still live
    w  hypotheses kept side by side for each live sentence; r = l * w rows in the model
    c  candidates for the next step, for each live sentence
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from transduce.decoding.options import DecodingOptions

LengthPenalty = Callable[[int], float]
DEAD = float("-inf")


@dataclass(frozen=True)
class Hypothesis:
    """One decoded sequence.

    tokens:   ids, without the prefix and without the end of sentence.
    log_prob: the model's log-probability of them all, the end of sentence included.
    score:    log_prob over the length penalty; hypotheses are ranked by it.
    finished: it ends with an end of sentence.  An unfinished one is returned only where the
              caller said that it ends there, or where its sentence has no other at all.
    """

    tokens: list[int]
    log_prob: float
    score: float
    finished: bool


@dataclass(frozen=True)
class Live:
    """Hypotheses still growing, all of one length.

    sentences: (l) which of the n sentences each is.
    limits:    (l) most tokens before the end of sentence.
    log_probs: (l, w) of each hypothesis so far; -inf marks a dead row.
    tokens:    (l, w, length) ids so far, without the prefix.
    """

    sentences: list[int]
    limits: list[int]
    log_probs: Tensor
    tokens: Tensor

    @property
    def length(self) -> int:
        """Tokens so far."""
        return self.tokens.shape[2]

    @property
    def width(self) -> int:
        """Hypotheses per sentence."""
        return self.tokens.shape[1]


class Candidates(NamedTuple):
    """Ways to go on, best first where it matters.

    log_probs: (l, c) of the hypothesis with the new token; -inf marks one that cannot be.
    parents:   (l, c) which of the w hypotheses each continues.
    tokens:    (l, c) the new token.
    """

    log_probs: Tensor
    parents: Tensor
    tokens: Tensor


class Finished:
    """The n best finished hypotheses of one sentence; equals stay in the order they came."""

    def __init__(self, n_best: int) -> None:
        self.count = 0
        self.best: list[Hypothesis] = []
        self._n_best = n_best

    def add(self, hypothesis: Hypothesis) -> None:
        """Note one more; the worst leaves if there are too many."""
        self.count += 1
        bisect.insort(self.best, hypothesis, key=lambda other: -other.score)
        del self.best[self._n_best :]

    @property
    def to_beat(self) -> float:
        """The score that a newcomer must exceed to matter."""
        return self.best[-1].score if len(self.best) == self._n_best else DEAD


def length_penalty(options: DecodingOptions) -> LengthPenalty:
    """The divisor for a hypothesis of a given length; positive, and never falls with length."""
    if options.length_penalty == "none":
        return lambda length: 1.0
    if options.length_penalty == "mean":
        return lambda length: float(max(length, 1))
    alpha = options.alpha
    return lambda length: float(((5 + length) / 6) ** alpha)
