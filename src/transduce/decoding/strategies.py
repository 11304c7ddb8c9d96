"""Search strategies: the best continuations (beam search), or draws (sampling)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from transduce.decoding.filters import keep_min_p, keep_top_k, keep_top_p
from transduce.decoding.hypotheses import DEAD, ActiveHypotheses, BeamCandidates
from transduce.decoding.options import DecodingOptions
from transduce.decoding.topk import topk
from transduce.sequence import is_at_hand

Strategy = Callable[[Tensor, ActiveHypotheses], BeamCandidates]
"""Call with filtered log-probabilities (l, w, v), perhaps overwritten, and hypotheses."""


def beam_search(beam_size: int, log_probs: Tensor, active: ActiveHypotheses) -> BeamCandidates:
    """The best 2 * beam_size continuations of each sentence, best first; ties go to the better
    parent, then to the lower id.  At most beam_size end the sentence, so as many remain to
    continue."""
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
    """Draws of `n_best` independent samples, by numbers (n, samples, steps) from [0, 1)."""
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
    such among the first `width`, of each beam group."""
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
