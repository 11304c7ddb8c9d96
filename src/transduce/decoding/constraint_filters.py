"""Filters of a step's log-probabilities that follow the output constraints of each sentence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.decoding.filters import Filter, apply_all
from transduce.decoding.hypotheses import DEAD, ActiveHypotheses
from transduce.decoding.output_constraints import OutputConstraints


def ban_phrases(sentence_constraints: Sequence[OutputConstraints]) -> Filter:
    """Rule out tokens that complete a banned phrase."""

    def apply(log_probs: Tensor, active: ActiveHypotheses) -> None:
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
            where = torch.tensor([rows, columns], device=log_probs.device)
            log_probs.view(-1, log_probs.shape[2])[where[0], where[1]] = DEAD

    return apply


def force_prefix(
    sentence_constraints: Sequence[OutputConstraints], filters: Sequence[Filter]
) -> Filter:
    """Force the prefix of each sentence, then apply the filters."""
    longest = max(len(output_constraints.prefix) for output_constraints in sentence_constraints)

    def apply(log_probs: Tensor, active: ActiveHypotheses) -> None:
        forced = []
        if active.length < longest:
            prefixes = [sentence_constraints[sentence].prefix for sentence in active.sentences]
            forced = [
                (i, p[active.length]) for i, p in enumerate(prefixes) if active.length < len(p)
            ]
        if not forced:
            return apply_all(filters, log_probs, active)
        rows, tokens = torch.tensor(forced, device=log_probs.device).unbind(1)
        unfiltered = log_probs[rows, :, tokens]  # (forced, w)
        apply_all(filters, log_probs, active)
        log_probs[rows] = DEAD
        log_probs[rows, :, tokens] = unfiltered
        return None

    return apply
