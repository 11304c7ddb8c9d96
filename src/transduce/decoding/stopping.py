"""Stopping rules of beam search, with the proof of the exact rule."""

from __future__ import annotations

from transduce.decoding.hypotheses import DEAD, FinishedHypotheses
from transduce.decoding.options import DecodingOptions


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
