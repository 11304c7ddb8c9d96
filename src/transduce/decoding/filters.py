"""Filters of the next token: each sets some log-probabilities to -inf, in place.  The others are
unchanged, so the score of a hypothesis equals its score under forced decoding."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.decoding.hypotheses import DEAD, ActiveHypotheses
from transduce.decoding.topk import topk
from transduce.sequence import is_at_hand

RANKED = 256
"""Number of tokens that `keep_top_p` ranks first, before the whole vocabulary where needed."""

Filter = Callable[[Tensor, ActiveHypotheses], None]
"""Call with log-probabilities (l, w, v) and the hypotheses that they continue."""


def forbid(tokens: Tensor, log_probs: Tensor, active: ActiveHypotheses) -> None:
    """Forbid these ids (k)."""
    log_probs.index_fill_(2, tokens, DEAD)


def bound_length(eos: int, free_end: bool, log_probs: Tensor, active: ActiveHypotheses) -> None:
    """At the limit of hypotheses, allow only the end.  free_end: it then has probability 1."""
    full = active.at_limit
    if full is None:
        return
    end = log_probs[:, :, eos]
    end = torch.where(full, end.clamp(min=0.0), end) if free_end else end.clone()
    if active.there is None:
        log_probs[active.full] = DEAD  # few rows
    else:
        log_probs.masked_fill_(full[:, :, None], DEAD)
    log_probs[:, :, eos] = end


def forbid_early_end(
    eos: int, min_lengths: Tensor, log_probs: Tensor, active: ActiveHypotheses
) -> None:
    """Forbid an end of sentence before `min_lengths` (n) tokens; the limit takes precedence."""
    at, rows, limits = active.lengths
    early = min_lengths[rows].minimum(limits) > at
    log_probs.select(2, eos).masked_fill_(early[:, None], DEAD)


def no_repeats(n: int, log_probs: Tensor, active: ActiveHypotheses) -> None:
    """Forbid repeated n-grams within a hypothesis."""
    if active.tokens.shape[2] < n:
        return
    windows = active.tokens.unfold(2, n, 1)  # (l, w, length - n + 1, n)
    followers = windows[..., -1]  # -1 where no token is yet
    newest = active.lengths.at - torch.arange(n - 1, 0, -1, device=log_probs.device)
    last = active.tokens.index_select(2, newest.clamp(min=0))  # (l, w, n - 1)
    again = (windows[..., :-1] == last.unsqueeze(2)).all(3) & (followers >= 0)
    hits = torch.zeros_like(log_probs)
    hits.scatter_add_(2, followers.clamp(min=0), again.to(log_probs))
    log_probs.masked_fill_(hits > 0, DEAD)


def penalise_repeats(log_probs: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    """Multiply the log-probabilities (l, w, v) of `tokens` (l, w, t), -1 for none, by `penalty`."""
    v = log_probs.shape[2]
    repeated = F.pad(torch.zeros_like(log_probs, dtype=torch.bool), (0, 1))
    repeated.scatter_(2, torch.where(tokens < 0, v, tokens), True)
    return torch.where(repeated[:, :, :v], log_probs * penalty, log_probs)


def keep_top_k(log_probs: Tensor, k: int) -> Tensor:
    """Keep the k likeliest of each row (..., v), the rest become -inf; ties go to the lower ids."""
    rows = log_probs.flatten(0, -2)
    values, ids = topk(rows, min(k, rows.shape[1]))
    return torch.full_like(rows, DEAD).scatter_(1, ids, values).view_as(log_probs)


def keep_top_p(log_probs: Tensor, p: float) -> Tensor:
    """Keep the smallest set of likeliest tokens in each row (..., v) with total probability `p`."""
    probs = log_probs.softmax(-1).flatten(0, -2)
    ranked, ids = topk(probs, min(RANKED, probs.shape[1]))
    some = ranked.shape[1] < probs.shape[1]
    if some and not (is_at_hand(probs) and bool((ranked.sum(1) >= p).all())):
        ranked, ids = probs.sort(dim=1, descending=True, stable=True)
    before = ranked.cumsum(1) - ranked
    drop = torch.ones_like(probs, dtype=torch.bool).scatter_(1, ids, before >= p)
    return log_probs.masked_fill(drop.view_as(log_probs), DEAD)


def keep_min_p(log_probs: Tensor, p: float) -> Tensor:
    """Keep tokens of each row (..., v) with at least `p` times the highest probability."""
    drop = log_probs < log_probs.amax(-1, keepdim=True) + math.log(p)
    return log_probs.masked_fill(drop, DEAD)
