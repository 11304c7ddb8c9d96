"""Results of a search so far, and which sentences are done."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from transduce.decoding.hypotheses import (
    DEAD,
    ActiveHypotheses,
    BeamCandidates,
    FinishedHypotheses,
    Hypothesis,
    length_penalty,
)
from transduce.decoding.options import DecodingOptions
from transduce.decoding.stopping import is_done
from transduce.errors import TransduceError

StoppingCriterion = Callable[[int, list[int]], bool]
"""Called with a sentence index and the ids of a hypothesis; true ends the hypothesis there."""


class SearchResults:
    """Finished hypotheses of each sentence, and the sentences that are done."""

    def __init__(
        self,
        options: DecodingOptions,
        n: int,
        ended: StoppingCriterion | None,
        further_bonus: float = 0.0,
    ) -> None:
        """further_bonus: that a live hypothesis may still gain."""
        self.finished = [FinishedHypotheses(options) for _ in range(n)]
        self._options = options
        self._ended = ended
        self._further_bonus = further_bonus

    @property
    def best(self) -> list[list[Hypothesis]]:
        """The best finished hypotheses of each sentence so far."""
        return [finished.best for finished in self.finished]

    def end(
        self, active: ActiveHypotheses, continuing: BeamCandidates, extended: Tensor
    ) -> BeamCandidates:
        """Hypotheses without those, `extended` (l, w, length + 1), that a criterion ends."""
        if self._ended is None:
            return continuing
        log_probs = continuing.log_probs.clone()
        penalty = length_penalty(self._options, active.length + 1)
        unpenalised = (
            log_probs if continuing.unpenalised is None else continuing.unpenalised
        ).tolist()
        rows = zip(active.sentences, extended.tolist(), log_probs.tolist(), strict=True)
        for i, (sentence, tokens, totals) in enumerate(rows):
            for j, (ids, total) in enumerate(zip(tokens, totals, strict=True)):
                if total > DEAD and self._ended(sentence, ids):
                    hypothesis = Hypothesis(ids, unpenalised[i][j], total / penalty, finished=False)
                    self.finished[sentence].add(hypothesis)
                    log_probs[i, j] = DEAD
        return continuing._replace(log_probs=log_probs)

    def update(
        self,
        active: ActiveHypotheses,
        candidates: BeamCandidates,
        continuing: BeamCandidates,
        ending: Tensor | None,
        worst: Tensor,
        bonus: Tensor | None,
    ) -> list[int]:
        """Record hypotheses that end; returns the indices of live sentences that continue.

        ending: (l, c) candidates that end their sentence; None without any.  worst: (l,) NaN if the
        model's scores are NaN.  bonus: (l, w) added to the score of each hypothesis that ends.
        """
        ended = torch.zeros_like(worst) if ending is None else ending.any(1).to(worst)
        # Read at once: a look at a GPU waits for the whole step.
        bests, worsts, ends = torch.stack([continuing.log_probs.amax(1), worst, ended]).tolist()
        if any(map(math.isnan, worsts)):
            raise TransduceError(
                f"the model's scores are NaN after {active.length} tokens; its weights are "
                "damaged, or its precision is too low (try float32)"
            )
        if ending is not None and any(ends):
            self._collect(active, candidates, ending, bonus)
        keep = []
        for i, (sentence, limit) in enumerate(zip(active.sentences, active.limits, strict=True)):
            length = active.length if self._options.stop == "present" else limit
            bound = (bests[i] + self._further_bonus) / length_penalty(self._options, length + 1)
            if not is_done(self._options, self.finished[sentence], bound):
                keep.append(i)
            elif not self.finished[sentence].count:
                self._keep_unfinished(active, i)
        return keep

    def _collect(
        self,
        active: ActiveHypotheses,
        candidates: BeamCandidates,
        ending: Tensor,
        bonus: Tensor | None,
    ) -> None:
        rows, places = ending.nonzero(as_tuple=True)
        parents = candidates.parents[rows, places]
        tokens = active.tokens[rows, parents].tolist()
        totals = candidates.log_probs[rows, places]
        log_probs = (
            totals if candidates.unpenalised is None else candidates.unpenalised[rows, places]
        )
        penalty = length_penalty(self._options, active.length + 1)
        scores = [total / penalty for total in totals.tolist()]
        if bonus is not None:
            added = bonus[rows, parents].tolist()
            scores = [score + more for score, more in zip(scores, added, strict=True)]
        for i, ids, log_prob, score in zip(
            rows.tolist(), tokens, log_probs.tolist(), scores, strict=True
        ):
            self.finished[active.sentences[i]].add(Hypothesis(ids, log_prob, score, finished=True))

    def _keep_unfinished(self, active: ActiveHypotheses, i: int) -> None:
        penalty = length_penalty(self._options, active.length)
        log_probs = active.log_probs if active.unpenalised is None else active.unpenalised
        rows = zip(
            active.tokens[i], log_probs[i].tolist(), active.log_probs[i].tolist(), strict=True
        )
        for ids, log_prob, total in rows:
            if total > DEAD:
                self.finished[active.sentences[i]].add(
                    Hypothesis(ids.tolist(), log_prob, total / penalty, finished=False)
                )
