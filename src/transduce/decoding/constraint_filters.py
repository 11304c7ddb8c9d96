"""Filters and bonuses of a step's log-probabilities, by the output constraints of each sentence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.decoding.filters import Filter
from transduce.decoding.hypotheses import DEAD, ActiveHypotheses
from transduce.decoding.output_constraints import OutputConstraints


def ban_phrases(
    sentence_constraints: Sequence[OutputConstraints], log_probs: Tensor, active: ActiveHypotheses
) -> None:
    """Rule out tokens that complete a banned phrase."""
    rows: list[int] = []
    columns: list[int] = []
    for i, sentence in enumerate(active.sentences):
        banned = sentence_constraints[sentence].banned
        if banned is None:
            continue
        for j, ids in enumerate(active.tokens[i].tolist()):
            tokens = banned.after(ids)
            rows += [i * active.width + j] * len(tokens)
            columns += tokens
    if rows:
        log_probs.view(-1, log_probs.shape[2])[rows, columns] = DEAD


def force_prefix(
    sentence_constraints: Sequence[OutputConstraints],
    filters: Sequence[Filter],
    log_probs: Tensor,
    active: ActiveHypotheses,
) -> None:
    """Force the prefix of each sentence; the filters apply to all others."""
    prefixes = [sentence_constraints[sentence].prefix for sentence in active.sentences]
    forced = [(i, p[active.length]) for i, p in enumerate(prefixes) if active.length < len(p)]
    if forced:
        rows, tokens = torch.tensor(forced, device=log_probs.device).unbind(1)
        unfiltered = log_probs[rows, :, tokens]  # (forced, w)
    for apply in filters:
        apply(log_probs, active)
    if forced:
        log_probs[rows] = DEAD
        log_probs[rows, :, tokens] = unfiltered


def hotword_bonus(
    sentence_constraints: Sequence[OutputConstraints], active: ActiveHypotheses, log_probs: Tensor
) -> Tensor | None:
    """Bonuses (l, w, v) of the next tokens; None without hotwords."""
    if not any(each.hotwords for each in sentence_constraints):
        return None
    bonus = log_probs.new_zeros(log_probs.shape)
    for i, sentence in enumerate(active.sentences):
        hotwords = sentence_constraints[sentence].hotwords
        if hotwords is not None:
            for j, ids in enumerate(active.tokens[i].tolist()):
                hotwords.add_to(bonus[i, j], hotwords.match(ids))
    return bonus
