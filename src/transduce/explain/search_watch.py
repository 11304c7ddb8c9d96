"""A search, watched from outside: which hypotheses it kept, and which it cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor

from transduce.decoding.hypotheses import DEAD, ActiveHypotheses, Hypothesis, length_penalty
from transduce.decoding.output_constraints import OutputConstraints
from transduce.decoding.search import SearchRequest, search_steps
from transduce.decoding.topk import topk
from transduce.explain.parts import Fate, Node, SearchTree
from transduce.sequence import Padded
from transduce.text import BOS, EOS

SAMPLED_RIVALS = 4
"""Tokens that are shown beside each drawn token."""
MAX_NODES = 1500

Path = tuple[int, ...]
Names = Callable[[Sequence[int]], list[str]]


class _Candidate(NamedTuple):
    """A way on.  bonus: added to the score if it ends here."""

    total: float
    path: Path
    token: int
    bonus: float = 0.0


class SearchWatch:
    """Wraps the `step` and the bonus for the end of a search over an input; the search itself
    is not touched.

    best: ids of the best hypothesis, once the search is over; finished: it ends with EOS.
    """

    def __init__(
        self, request: SearchRequest[Any], names: Names, min_length: int | None = None
    ) -> None:
        """min_length: tokens before which no hypothesis ends; by default from the options."""
        options = request.options
        self._request = request
        self._least = options.min_length if min_length is None else min_length
        self._options, self._forbidden, self._names = options, set(request.forbidden), names
        beam = options.method == "beam"
        self._rivals = 2 * options.beam_size if beam else SAMPLED_RIVALS + options.n_best
        self._best: list[tuple[list[float], list[int]]] = []
        self._ends: list[float] = []
        self._bonuses: list[float] = []
        self._constraints = OutputConstraints()
        self._nodes = [Node(-1, names([BOS])[0], 0.0, "kept")]
        self._at: dict[Path, int] = {(): 0}
        self.best: list[int] = []
        self.finished = True

    def _watched(self) -> SearchRequest[Any]:
        """The same search, observed."""
        request = self._request
        token_bonus = request.hooks.token_bonus

        def step(fed: Padded, state: Any) -> Tensor:
            logits = request.step(fed, state)
            log_probs = logits[:, -1].float().log_softmax(-1)
            if token_bonus is not None:
                log_probs = log_probs + token_bonus(state)
            count = min(self._rivals + len(self._forbidden | {EOS}), log_probs.shape[1])
            values, ids = topk(log_probs, count)
            self._best = list(zip(values.tolist(), ids.tolist(), strict=True))
            self._ends = log_probs[:, EOS].tolist()
            return logits

        self._constraints = (*request.hooks.sentence_constraints, OutputConstraints())[0]
        end_bonus = request.hooks.end_bonus
        if end_bonus is None:
            return replace(request, step=step, is_watched=True)

        def bonus(state: Any) -> Tensor:
            bonus = end_bonus(state)
            self._bonuses = bonus.tolist()
            return bonus

        hooks = replace(request.hooks, end_bonus=bonus)
        return replace(request, step=step, hooks=hooks, is_watched=True)

    def tree(self) -> SearchTree:
        """Run the search to its end."""
        best: list[Hypothesis] = []
        snapshots = search_steps(self._watched())
        before = next(snapshots)
        for after in snapshots:
            if len(self._nodes) < MAX_NODES:
                self._grow(before.active, after.active)
            self._best, self._ends, self._bonuses = [], [], []
            before, best = after, after.best[0]
        if best:
            self._crown(best[0])
        options = self._options
        nodes = tuple(self._nodes)
        return SearchTree(
            options.method,
            options.width,
            options.length_penalty,
            options.alpha,
            nodes,
            options.coverage_penalty,
        )

    def _crown(self, best: Hypothesis) -> None:
        self.best, self.finished = best.tokens, best.finished
        won = (*best.tokens, *([EOS] if best.finished else []))
        if won not in self._at and won[:-1] in self._at:  # drawn, though no likely end
            token = self._names(won[-1:])[0]
            self._at[won] = len(self._nodes)
            self._nodes.append(Node(self._at[won[:-1]], token, best.log_prob, "ended"))
        if won in self._at:
            index = self._at[won]
            self._nodes[index] = replace(self._nodes[index], fate="won", score=best.score)

    def _candidates(self, active: ActiveHypotheses) -> list[_Candidate]:
        """The likeliest ways on, best first; at the greatest length the ends alone."""
        candidates = []
        for row, (path, total) in enumerate(_paths(active)):
            if total == DEAD:
                continue
            bonus = self._bonuses[row] if self._bonuses else 0.0
            if active.full:
                free = self._options.free_end
                end = 0.0 if free else self._ends[row]
                candidates.append(_Candidate(total + end, path, EOS, bonus))
                continue
            early = set() if self._may_end(path) else {EOS}
            values, ids = self._best[row]
            likeliest = [
                _Candidate(total + value, path, token, bonus)
                for value, token in zip(values, ids, strict=True)
                if token not in self._forbidden | early and value > DEAD
            ]
            candidates += likeliest[: self._rivals]
        return sorted(candidates, key=lambda candidate: -candidate.total)[: self._rivals]

    def _may_end(self, path: Path) -> bool:
        """True if the options let a hypothesis end, before its greatest length."""
        least = max(self._least, len(self._constraints.prefix))
        return len(path) >= least and self._constraints.is_met_by(path)

    def _grow(self, old: ActiveHypotheses, new: ActiveHypotheses) -> None:
        surviving = dict(_paths(new)) if new.sentences else {}
        shown = self._candidates(old)
        beam = self._options.method == "beam"
        there = {(*node.path, node.token) for node in shown}
        for path, total in surviving.items():  # drawn, or forced: not among the likeliest
            if path and path not in there and total != DEAD:
                shown.append(_Candidate(total, path[:-1], path[-1]))
        rank = -1
        for node in shown:
            path = (*node.path, node.token)
            rank += (
                not surviving or path in surviving or node.token == EOS
            )  # others were ruled out, or cut
            if node.path not in self._at:
                continue
            fate: Fate = "kept" if path in surviving else "cut"
            score = None
            if node.token == EOS and beam and rank < self._options.width:
                fate = "ended"
                score = node.total / length_penalty(self._options, len(path)) + node.bonus
            self._at[path] = len(self._nodes)
            token = self._names([node.token])[0]
            total = surviving.get(
                path, node.total
            )  # of a kept one with every penalty of the search
            self._nodes.append(Node(self._at[node.path], token, total, fate, score))


def _paths(active: ActiveHypotheses) -> list[tuple[Path, float]]:
    rows = zip(active.tokens[0].tolist(), active.log_probs[0].tolist(), strict=True)
    return [(tuple(ids), total if math.isfinite(total) else DEAD) for ids, total in rows]
