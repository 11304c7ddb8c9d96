"""Hypotheses of a search: active ones, candidates for the next step, finished ones, and the
rules of stopping.

Shape letters, in addition to `transduce.sequence`:

    n  sentences that the search began with
    l  active sentences
    w  hypotheses kept side by side for each active sentence; r = l * w rows in the model
    c  candidates for the next step, for each active sentence
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from transduce.decoding.options import DecodingOptions

if TYPE_CHECKING:
    from torch import Tensor


DEAD = float("-inf")


@dataclass(frozen=True)
class Hypothesis:
    """A decoded sequence.

    tokens:   ids, without the prefix and without the end of sentence.
    log_prob: model log-probability of all tokens, including the end of sentence unless that was
              free at the maximum length (`free_end`).
    score:    log_prob, including language model and repetition penalty, divided by the length
              penalty, plus the coverage penalty. Used for ranking.
    finished: it ends with an end of sentence. Otherwise it is returned only if a stopping
              criterion ended it, or if its sentence has no other.
    """

    tokens: list[int]
    log_prob: float
    score: float
    finished: bool


class Lengths(NamedTuple):
    """Tokens of hypotheses so far, `at` (1,), their sentences, `rows` (l,), and `limits` (l,)."""

    at: Tensor
    rows: Tensor
    limits: Tensor


@dataclass(frozen=True)
class ActiveHypotheses:
    """Hypotheses still growing, all of the same length.

    sentences: (l) index among the n sentences.
    limits:    (l) most tokens before the end of sentence.
    log_probs: (l, w) of each hypothesis so far; -inf marks a dead row.
    tokens:    (l, w, length) ids so far, without the prefix.
    unpenalised: (l, w) log-probability of the model alone, if `log_probs` includes bonuses or
               penalties.
    there: of a block of steps, all lengths, as the device alone knows them; `tokens` then have room
               for the whole block, -1 where no step has been.
    """

    sentences: list[int]
    limits: list[int]
    log_probs: Tensor
    tokens: Tensor
    unpenalised: Tensor | None = None
    there: Lengths | None = None

    @property
    def lengths(self) -> Lengths:
        """Lengths on the device."""
        new = self.tokens.new_tensor
        return self.there or Lengths(new([self.length]), new(self.sentences), new(self.limits))

    @property
    def length(self) -> int:
        """Tokens so far."""
        return self.tokens.shape[2]

    @property
    def width(self) -> int:
        """Hypotheses per sentence."""
        return self.tokens.shape[1]

    def on_cpu(self) -> ActiveHypotheses:
        """The same, read from the device."""
        tensors = self.log_probs, self.tokens, self.unpenalised
        copies: Any = (None if part is None else part.to("cpu", copy=True) for part in tensors)
        return ActiveHypotheses(self.sentences, self.limits, *copies)

    @property
    def full(self) -> list[int]:
        """Indices of hypotheses at their limit, which can only end."""
        return [i for i, limit in enumerate(self.limits) if limit <= self.length]

    @property
    def at_limit(self) -> Tensor | None:
        """(l, 1) True for hypotheses at their limit; None if there are known to be none."""
        if self.there is None and not self.full:
            return None
        at, _, limits = self.lengths
        return (limits <= at)[:, None]


class BeamCandidates(NamedTuple):
    """Candidates (l, c) for the next step, best first where it matters.

    log_probs: of the hypothesis with the new token; -inf marks an impossible candidate.  parents:
    indices among the w hypotheses.  unpenalised: log-probability of the model alone, if `log_probs`
    includes bonuses or penalties.
    """

    log_probs: Tensor
    parents: Tensor
    tokens: Tensor
    unpenalised: Tensor | None = None

    def first(self, count: int) -> BeamCandidates:
        """The first `count` of each sentence."""
        return self._each(lambda part: part[:, :count])

    def pick(self, places: Tensor) -> BeamCandidates:
        """Candidates by place (l, c')."""
        return self._each(lambda part: part.gather(1, places))

    def _each(self, change: Callable[[Tensor], Tensor]) -> BeamCandidates:
        parts: Any = (None if part is None else change(part) for part in self)
        return BeamCandidates(*parts)


class StepOutcome(NamedTuple):
    """Candidates after a step.  worst: (l,) NaN if the model's scores are NaN.  bonus: (l, w) added
    to the score of each hypothesis that ends."""

    candidates: BeamCandidates
    worst: Tensor
    bonus: Tensor | None = None


class FinishedHypotheses:
    """The best finished hypotheses of a sentence; ties keep their order."""

    def __init__(self, options: DecodingOptions) -> None:
        self.count = 0
        self._n_best = options.n_best
        self._kept = max(options.n_best, options.width)
        # groups of a beam may finish the same output
        self._distinct = options.method == "beam" and options.beam_groups > 1
        self._ranked: list[Hypothesis] = []

    @property
    def best(self) -> list[Hypothesis]:
        """The n best hypotheses, best first."""
        return self._ranked[: self._n_best]

    def add(self, hypothesis: Hypothesis) -> None:
        """Add a hypothesis; drop the worst if there are too many."""
        if self._distinct and any(hypothesis.tokens == other.tokens for other in self._ranked):
            return
        self.count += 1
        bisect.insort(self._ranked, hypothesis, key=lambda other: -other.score)
        del self._ranked[self._kept :]

    def rank(self, n: int) -> float:
        """The score of the n-th best, n at most the number remembered."""
        return self._ranked[n - 1].score if len(self._ranked) >= n else DEAD


def length_penalty(options: DecodingOptions, length: int) -> float:
    """The divisor for a hypothesis of a given length; positive, and never falls with length."""
    length += options.extra_length
    match options.length_penalty:
        case "none":
            return 1.0
        case "mean":
            return float(max(length, 1))
        case "gnmt":
            return float(((5 + length) / 6) ** options.alpha)


def is_done(options: DecodingOptions, finished: FinishedHypotheses, bound: float) -> bool:
    """True for a sentence whose search ends, by the rule `options.stop`.

    bound: on the score of live hypotheses; for the rule "present", the score of the best live
    hypothesis if it ended now.

    Exact: done when no live hypothesis can still beat the n-th best of the finished.  The bound is
    live_log_prob / penalty(max_length + 1), where live_log_prob <= 0 is the best live
    hypothesis's.  Proof: later tokens only add log-probabilities <= 0, so every finished hypothesis
    has log_prob <= live_log_prob <= 0.  Its length, end of sentence included, is at most max_length
    + 1, and every penalty here is positive and never falls with length (alpha >= 0), so dividing a
    number <= 0 by the penalty of the maximum length gives an upper bound:

        log_prob / penalty(length) <= live_log_prob / penalty(length)
                                   <= live_log_prob / penalty(max_length + 1)

    The n best then equal the results of running the same beam to the end.

    First: also done once as many hypotheses as the beam is wide have finished.

    Present: done once that many have finished and the best live one, at its present length, scores
    no better than the worst of them.
    """
    width = options.width
    # Samples do not compete: the first rule waits for all of them.
    stop = options.stop if options.method == "beam" else "first"
    if stop == "present":
        return bound == DEAD or (finished.count >= width and bound <= finished.rank(width))
    nothing_can_win = bound <= finished.rank(options.n_best)
    return nothing_can_win or (stop == "first" and finished.count >= width)
