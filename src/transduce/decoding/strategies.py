"""Search strategies: filters of the next token, then the best continuations (beam search) or
draws (sampling)."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.decoding.hypotheses import DEAD, ActiveHypotheses, BeamCandidates
from transduce.decoding.options import DecodingOptions
from transduce.sequence import is_at_hand

GROUP = 64
FEW = 1 << 14
"""Values searched in a round; for fewer, the calls of two rounds would cost more."""


def topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row (l, x), best first: values and indices (l, count).

    Wide rows are searched first for the groups with the largest maxima, then inside these.  That is
    exact: had a value of another group a right to be chosen, each of the `count` chosen groups
    would hold one that goes before it.
    """
    groups = values.shape[1] // GROUP
    if groups < 2 * count or values.numel() <= FEW:
        return _topk(values, count)
    split = groups * GROUP
    grouped = values[:, :split].view(-1, groups, GROUP)  # (l, x) -> (l, groups, GROUP)
    # in ascending order, so that the order of candidates is the order of indices
    chosen = _topk(grouped.amax(2), count)[1].sort(1).values.unsqueeze(2)
    inside = grouped.gather(1, chosen.expand(-1, -1, GROUP)).flatten(1)
    index = (chosen * GROUP + torch.arange(GROUP, device=values.device)).flatten(1)
    if split < values.shape[1]:
        inside = torch.cat([inside, values[:, split:]], 1)
        rest = torch.arange(split, values.shape[1], device=values.device)
        index = torch.cat([index, rest.expand(len(values), -1)], 1)
    top, at = _topk(inside, count)
    return top, index.gather(1, at)


def _topk(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    if not is_at_hand(values):  # instead of looking for ties
        ordered = values.sort(dim=1, descending=True, stable=True)
        return ordered.values[:, :count], ordered.indices[:, :count]
    top, index = values.topk(min(count + 1, values.shape[1]))
    if not bool((top[:, 1:] == top[:, :-1]).any()):  # mostly, and then nothing is left open
        return top[:, :count], index[:, :count]
    edge = top[:, count - 1 : count]
    tied = (top[:, count:] == edge) & (edge > float("-inf"))
    index = index[:, :count]
    if bool(tied.any()):  # topk took some of the equals: take the first of them instead
        every = torch.arange(values.shape[1], device=values.device)
        key = torch.where(values == edge, every, len(every))
        key = torch.where(values > edge, every - len(every), key)
        index = key.topk(count, largest=False).indices
    index = index.sort(1).values
    top, order = values.gather(1, index).sort(dim=1, descending=True, stable=True)
    return top, index.gather(1, order)


RANKED = 256
"""Number of tokens that `keep_top_p` ranks first, before the whole vocabulary where needed."""

Filter = Callable[[Tensor, ActiveHypotheses], None]
"""Call with log-probabilities (l, w, v) and the hypotheses that they continue."""


def forbid(tokens: Tensor, log_probs: Tensor, active: ActiveHypotheses) -> None:
    """Forbid these ids (k).

    tokens: (k,) ids.  log_probs: (l, w, v), changed in place.  active: unused.
    """
    log_probs.index_fill_(2, tokens, DEAD)


def bound_length(eos: int, free_end: bool, log_probs: Tensor, active: ActiveHypotheses) -> None:
    """At the limit of hypotheses, allow only the end.  free_end: it then has probability 1.

    eos: id of the end.  log_probs: (l, w, v), changed in place.  active: live hypotheses, with
    their limits.
    """
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
    """Forbid an end of sentence before `min_lengths` (n) tokens; the limit takes precedence.

    eos: id of the end.  log_probs: (l, w, v), changed in place.  active: live hypotheses.
    """
    at, rows, limits = active.lengths
    early = min_lengths[rows].minimum(limits) > at
    log_probs.select(2, eos).masked_fill_(early[:, None], DEAD)


def no_repeats(n: int, log_probs: Tensor, active: ActiveHypotheses) -> None:
    """Forbid repeated n-grams within a hypothesis.

    log_probs: (l, w, v), changed in place.  active: live hypotheses.
    """
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


Strategy = Callable[[Tensor, ActiveHypotheses], BeamCandidates]
"""Call with filtered log-probabilities (l, w, v), perhaps overwritten, and hypotheses."""


def beam_search(beam_size: int, log_probs: Tensor, active: ActiveHypotheses) -> BeamCandidates:
    """The best 2 * beam_size continuations of each sentence, best first; ties go to the better
    parent, then to the lower id.  At most beam_size end the sentence, so as many remain to
    continue.

    log_probs: (l, w, v), of the next tokens; changed in place.  active: live hypotheses.
    """
    v = log_probs.shape[2]
    # in place: a new one for each step costs more than the sums
    totals = log_probs.add_(active.log_probs.unsqueeze(2)).flatten(1)  # (l, w, v) -> (l, w * v)
    best, index = topk(totals, min(2 * beam_size, totals.shape[1]))
    return BeamCandidates(best, index // v, index % v)


def diverse_beam_search(
    beam_size: int, groups: int, strength: float, log_probs: Tensor, active: ActiveHypotheses
) -> BeamCandidates:
    """The best 2 * (beam_size / groups) continuations of each beam group, groups side by side.

    Groups choose in order; each token chosen by an earlier group costs `strength` in the choice,
    not in log-probabilities (Vijayakumar et al. 2018, equation 5 with Hamming diversity).

    log_probs: (l, w, v), of the next tokens.  active: live hypotheses.
    """
    size = beam_size // groups
    v = log_probs.shape[2]
    totals = log_probs + active.log_probs.unsqueeze(2)  # (l, w, v)
    each = active.width if active.width == 1 else size  # the first step has one row for all
    chosen = torch.zeros_like(totals[:, 0])  # (l, v) how often, by the groups before
    selected = []
    for group in range(groups):
        first = 0 if active.width == 1 else group * size
        group_totals = totals[:, first : first + each].flatten(1)  # (l, each * v)
        lowered = totals[:, first : first + each] - strength * chosen.unsqueeze(1)
        _, index = topk(lowered.flatten(1), min(2 * size, each * v))
        index = F.pad(index, (0, 2 * size - index.shape[1]))
        tokens = index % v
        best = group_totals.gather(1, index)
        best[:, each * v :] = DEAD
        taken = (best[:, :size] > DEAD).to(best)
        chosen = chosen.scatter_add(1, tokens[:, :size], taken)
        selected.append((best, index // v + first, tokens))
    return BeamCandidates(*(torch.cat(parts, 1) for parts in zip(*selected, strict=True)))


def random_sampling(
    options: DecodingOptions,
    numbers: Tensor,
    log_probs: Tensor,
    active: ActiveHypotheses,
) -> BeamCandidates:
    """Draws of `n_best` independent samples, by numbers (n, samples, steps) from [0, 1).

    options: `n_best`, temperature and cuts of the distribution.  log_probs: (l, w, v), of the next
    tokens.  active: live hypotheses.
    """
    at, sentences, _ = active.lengths
    rows = numbers[sentences, :, at]
    each = options.n_best // active.width  # samples drawn from a row: all at first, then one
    cumulative = _distribution(log_probs, options).cumsum(2)  # (l, w, v)
    at = rows.view(-1, active.width, each) * cumulative[:, :, -1:]
    # In the order of ids, not of probability: rounding that differs from batch to batch
    # cannot then swap neighbours, and moves a border by next to nothing.
    tokens = torch.searchsorted(cumulative, at, right=True)  # (l, w, each)
    # only a row where nothing is allowed has no token there, and that row is dead
    tokens = tokens.clamp(max=log_probs.shape[2] - 1)
    totals = active.log_probs.unsqueeze(2) + log_probs.gather(2, tokens)
    parents = torch.arange(active.width, device=tokens.device)[:, None].expand_as(tokens)
    return BeamCandidates(totals.flatten(1), parents.flatten(1), tokens.flatten(1))


def _distribution(log_probs: Tensor, options: DecodingOptions) -> Tensor:
    """Sampling distribution (l, w, v) in float64; all zero if nothing is allowed."""
    # float64 and new: in float32 a sum over a large vocabulary would never reach rare tokens
    scaled = log_probs.double()
    # the likeliest at 0, so that no temperature makes all of them too small for a number
    highest = scaled.amax(2, keepdim=True).clamp(min=torch.finfo(scaled.dtype).min)
    scaled = (scaled - highest) / options.temperature
    if options.top_k:
        scaled = keep_top_k(scaled, options.top_k)
    if options.top_p < 1:
        scaled = keep_top_p(scaled, options.top_p)
    if options.min_p:
        scaled = keep_min_p(scaled, options.min_p)
    return scaled.softmax(2).nan_to_num(0.0)


def split(
    candidates: BeamCandidates, eos: int, options: DecodingOptions
) -> tuple[BeamCandidates, Tensor | None]:
    """First `width` continuing candidates, and a mask (l, c) of those that end their sentence: only
    such among the first `width`, of each beam group.

    eos: id of the end.  options: of decoding, for the number of hypotheses and groups.
    """
    groups = options.beam_groups if options.method == "beam" else 1
    width = options.width // groups
    ends = candidates.tokens == eos
    if groups == 1 and is_at_hand(ends) and not bool(ends.any()):
        return candidates.first(width), None
    c = ends.shape[1] // groups
    first = torch.arange(ends.shape[1], device=ends.device) % c < width
    ending = ends & (candidates.log_probs > DEAD) & first
    continuing = candidates._replace(log_probs=candidates.log_probs.masked_fill(ends, DEAD))
    if c > width:
        grouped = ends.view(-1, groups, c).int()
        order = grouped.argsort(dim=2, stable=True)[:, :, :width]
        starts = torch.arange(0, ends.shape[1], c, device=ends.device)
        continuing = continuing.pick((order + starts[:, None]).flatten(1))
    return continuing, ending
