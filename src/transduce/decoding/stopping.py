"""Stopping rules of beam search, with the proof of the exact one."""

from __future__ import annotations

from collections.abc import Callable

from transduce.decoding.hypotheses import DEAD, FinishedHypotheses
from transduce.decoding.options import DecodingOptions

StoppingRule = Callable[[FinishedHypotheses, float], bool]
"""Called with the finished hypotheses and an upper bound on the score of live ones; for the rule
"present", with the score of the best live hypothesis if it ended now."""


def stopping_rule(options: DecodingOptions) -> StoppingRule:
    """Stopping rule selected by `options.stop`.

    Exact: done when no live hypothesis can still beat the n-th best finished one.  The bound is
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

    def nothing_can_win(finished: FinishedHypotheses, bound: float) -> bool:
        return bound <= finished.to_beat

    def enough(finished: FinishedHypotheses, bound: float) -> bool:
        return finished.count >= options.width or bound <= finished.to_beat

    def none_is_better_now(finished: FinishedHypotheses, bound: float) -> bool:
        full = finished.count >= options.width and bound <= finished.rank(options.width)
        return full or bound == DEAD

    if options.stop == "present" and options.method == "beam":
        return none_is_better_now
    # Samples do not compete: the first rule waits for every one of them.
    exact = options.stop == "exact" and options.method == "beam"
    return nothing_can_win if exact else enough
