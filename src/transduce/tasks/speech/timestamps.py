"""Times that a model writes among its words, as Whisper does (Radford et al. 2022).

    <|0.00|> words <|2.40|><|2.90|> more words <|4.12|>

Shapes: l sentences, w hypotheses, v tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from transduce.decoding.hypotheses import DEAD, ActiveHypotheses

if TYPE_CHECKING:
    from torch import Tensor

    from transduce.decoding.filters import Filter

STEP = 0.02
"""Seconds between two times."""
LATEST_START = 1.0
"""Seconds by which the first words have begun."""


def timestamp_rules(times: range, eos: int) -> Filter:
    """Allow only text between pairs of increasing times.

    The first token is a time of at most `LATEST_START`.  Words end with a time, and the end or the
    next beginning follows it, not before it; words have a length.  Where all times together are
    more probable than any other token, a time comes next.

    times: ids of the times, from 0 seconds on.
    """
    import torch

    first, end = times.start, times.stop

    def apply(log_probs: Tensor, active: ActiveHypotheses) -> None:
        of_times = log_probs[..., first:end]
        of_words = [part for part in (log_probs[..., :first], log_probs[..., end:]) if part.numel()]
        if not active.length:
            for part in (*of_words, of_times[..., round(LATEST_START / STEP) + 1 :]):
                part.fill_(DEAD)
            return
        written = (first <= active.tokens) & (active.tokens < end)  # (l, w, length)
        last = written[..., -1:]
        pair = last & (written[..., -2:-1] if active.length > 1 else True)
        closed = last & ~pair
        newest = active.tokens.masked_fill(~written, first - 1).amax(2, keepdim=True)  # (l, w, 1)
        ids = torch.arange(first, end, device=log_probs.device)
        of_times.masked_fill_(pair | (ids < newest + (~closed).long()), DEAD)
        at_end = log_probs[..., eos].clone()
        for part in of_words:
            part.masked_fill_(closed, DEAD)
        log_probs[..., eos] = at_end
        together = of_times.logsumexp(2, keepdim=True)
        best = torch.cat([part.amax(2, keepdim=True) for part in of_words], 2).amax(2, keepdim=True)
        for part in of_words:
            part.masked_fill_(together > best, DEAD)

    return apply


def forbid_first(tokens: Sequence[int]) -> Filter:
    """Forbid these ids at the beginning of an output."""

    def apply(log_probs: Tensor, active: ActiveHypotheses) -> None:
        if not active.length:
            for token in tokens:
                log_probs.select(2, token).fill_(DEAD)

    return apply


def renormalise(log_probs: Tensor, active: ActiveHypotheses) -> None:
    """Divide probabilities by their sum over the allowed tokens, as Whisper scores its outputs:
    there, what is forbidden costs the rest nothing."""
    log_probs -= log_probs.logsumexp(2, keepdim=True).nan_to_num(neginf=0.0)


class TimedTokens(NamedTuple):
    """Tokens of words, without times, from `start` to `end` seconds; inf if not written."""

    start: float
    end: float
    tokens: list[int]


def timed_tokens(tokens: Sequence[int], times: range) -> list[TimedTokens]:
    """Words of an output between its times."""
    timed: list[TimedTokens] = []
    start, words = 0.0, list[int]()
    for token in tokens:
        if token not in times:
            words.append(token)
            continue
        time = (token - times.start) * STEP
        if words:
            timed.append(TimedTokens(start, time, words))
            words = []
        start = time
    return [*timed, TimedTokens(start, math.inf, words)] if words else timed
