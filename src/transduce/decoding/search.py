"""The loop of every search: beam search, greedy search and sampling.

A model is a `step` from token ids to logits, and a state with selectable rows.  The options choose
token filters (`filters`), a search strategy (`strategies`) and a stopping rule (`stopping`);
`results` collects finished hypotheses.

Hypotheses of a sentence stand side by side, w rows for each of l sentences, so that a state can
store data of a sentence once.  A sentence that is done leaves the batch at once, or at the end of a
block of steps (`block`).
"""

import collections
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from transduce.decoding.constrained_search import (
    ConstraintTracker,
    ban_phrases,
    constrained_beam_search,
    force_prefix,
    hotword_bonus,
    require_constraints,
)
from transduce.decoding.constraints import NO_HOOKS, SearchHooks
from transduce.decoding.hypotheses import (
    DEAD,
    ActiveHypotheses,
    BeamCandidates,
    FinishedHypotheses,
    Hypothesis,
    StepOutcome,
    is_done,
    length_penalty,
)
from transduce.decoding.options import DecodingOptions, uniforms
from transduce.decoding.strategies import (
    Filter,
    Strategy,
    beam_search,
    bound_length,
    diverse_beam_search,
    forbid,
    forbid_early_end,
    no_repeats,
    penalise_repeats,
    random_sampling,
    split,
)
from transduce.decoding.window import BLOCK, Block, WindowedState
from transduce.errors import TransduceError
from transduce.nn.state import DecoderState
from transduce.sequence import Padded, is_at_hand

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
        """Hypotheses without those, `extended` (l, w, length + 1), that a criterion ends.

        active: live hypotheses.  continuing: candidates (l, w) of the next step.
        """
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

        active: live hypotheses.  continuing: candidates that go on.  ending: (l, c) candidates that
        end their sentence; None without any.  worst: (l,) NaN if the model's scores are NaN.
        bonus: (l, w) added to the score of each hypothesis that ends.
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


class SearchState(Protocol):
    """State of a model for each hypothesis."""

    def select(self, rows: Tensor) -> None:
        """Select hypotheses `rows` (r',), in order; repeats and omissions allowed."""


S = TypeVar("S", bound=SearchState)


class Snapshot(NamedTuple):
    """Progress of a search: hypotheses still growing, none at the end, and for each sentence its
    `n_best` finished hypotheses so far, best first."""

    active: ActiveHypotheses
    best: list[list[Hypothesis]]

    def certain(self) -> list[int]:
        """Ids that every possible result of a search for a sentence begins with."""
        candidates = [hypothesis.tokens for hypothesis in self.best[0]]
        for ids, log_probs in zip(self.active.tokens, self.active.log_probs, strict=True):
            candidates += ids[log_probs > DEAD].tolist()
        columns = zip(*candidates, strict=False)
        return [ids[0] for ids in itertools.takewhile(lambda ids: len(set(ids)) == 1, columns)]


@dataclass(frozen=True)
class SearchRequest(Generic[S]):
    """A search: the model's step, its state, and the limits, options and hooks of the search.

    step:        ids (r, t) and state -> logits (r, t', v), t' >= 1, of which the last count; the
                 state moves on by t.
    state:       of n rows, a row for each sentence; the search moves it.
    prefix:      (n, p) ids that start every hypothesis: the beginning of sentence, and after it
                 any forced tokens.  Padding stands on the left of shorter ones.
    max_lengths: (n,) most tokens after the prefix, the end of sentence not counted.
    eos:         id of the end of sentence.
    forbidden:   ids never to be emitted, such as the beginning of sentence and the padding.
    streams:     (n) numbers >= 0 that identify sentences in sampling, such as line numbers; the
                 batch index if None.
    ended:       stopping criterion besides the end of sentence.
    hooks:       constraints of each sentence, and bonuses beside the model's log-probabilities.
    cancelled:   called after each step with the index of each live sentence; if true, the sentence
                 leaves the batch with its finished hypotheses.
    ends_at_limit: hypotheses end at their maximum length by themselves, without an end of sentence.
    is_watched:  each step is read before the next.
    vocabulary:  (v) the ids that the logits stand for, where they are a part of the vocabulary; all
                 ids of the search are their places.
    """

    step: Callable[[Padded, S], Tensor]
    state: S
    prefix: Padded
    max_lengths: Tensor
    eos: int
    forbidden: Sequence[int]
    options: DecodingOptions
    streams: Sequence[int] | None = None
    ended: StoppingCriterion | None = None
    hooks: SearchHooks = NO_HOOKS
    cancelled: Callable[[int], bool] | None = None
    vocabulary: Sequence[int] | None = None
    ends_at_limit: bool = False
    is_watched: bool = False

    def original(self, ids: list[int]) -> list[int]:
        """Ids of the search in the numbering of the whole vocabulary."""
        return ids if self.vocabulary is None else [self.vocabulary[i] for i in ids]

    def whole(self, best: list[Hypothesis]) -> list[Hypothesis]:
        """Hypotheses with tokens in the numbering of the whole vocabulary."""
        if self.vocabulary is None:
            return best
        return [replace(h, tokens=self.original(h.tokens)) for h in best]


def search(request: SearchRequest[S]) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of each sentence, best first; fewer if fewer finished.

    Log-probabilities are over the whole vocabulary, in float32 unless the logits are float64.
    Raises TransduceError if the logits are NaN.
    """
    return collections.deque(search_steps(request), maxlen=1).pop().best


@torch.inference_mode()
def search_steps(request: SearchRequest[S]) -> Iterator[Snapshot]:
    """Run `search`; yields a snapshot before the first step and after each."""
    prefix, constraints = request.prefix, request.hooks.sentence_constraints
    assert prefix.padding != "right", "prefixes end at the same column"
    limits: list[int] = request.max_lengths.tolist()
    for i, output_constraints in enumerate(constraints):
        limits[i] = max(limits[i], len(output_constraints.prefix))
    most = max((each.hotwords.most for each in constraints if each.hotwords), default=0.0)
    n = len(limits)
    results = SearchResults(request.options, n, _criterion(request, limits), most)
    zeros, nothing = torch.zeros(n, 1, device=prefix.values.device), prefix.values[:, None, :0]
    fed, active = prefix, ActiveHypotheses([*range(n)], limits, zeros, nothing)
    step, block = SearchStep(request, limits), None
    yield Snapshot(active, results.best)
    while active.sentences:
        for candidates, worst, bonus in [step(fed, active)] if block is None else block.run():
            continuing, ending = split(candidates, request.eos, request.options)
            extended = _extended(active, continuing)
            continuing = results.end(active, continuing, extended)
            keep = results.update(active, candidates, continuing, ending, worst, bonus)
            if request.cancelled is not None:
                keep = [row for row in keep if not request.cancelled(active.sentences[row])]
            keep = _compacted(keep)
            old, active = active, _advance(active, continuing, extended, keep)
            if block is not None:
                block.keep(keep)
            elif keep:
                _select(request.state, old, continuing.parents, keep)
            yield Snapshot(active, results.best)
            if not keep:
                return
        if block is not None and not block.is_over:
            continue
        there = active if block is None else block.end()
        block = _block(step, there)
        active = there if block is None else active.on_cpu()
        fed = Padded.unpadded(there.tokens[:, :, -1].reshape(-1, 1))  # (l, w, length) -> (r, 1)


class SearchStep(Generic[S]):
    """The model's step, filters and strategy.  limits: (n,) most tokens of each sentence."""

    def __init__(self, request: SearchRequest[S], limits: Sequence[int]) -> None:
        self.request = request
        tries = [each.trie for each in request.hooks.sentence_constraints]
        tracker = ConstraintTracker(tries) if any(tries) else None
        self._strategy = _strategy(request, limits, tracker)
        self._filters = _filters(request, len(limits), tracker)
        self._logits = self._log_probs = torch.zeros(())

    def __call__(self, fed: Padded, active: ActiveHypotheses) -> StepOutcome:
        """Feed the newest tokens (r, t) of the hypotheses; the state moves on."""
        request, options, hooks = self.request, self.request.options, self.request.hooks
        if options.free_end and _all_at_limit(active, options, hooks):
            rows = active.log_probs.numel()
            logits = self._logits.new_zeros(rows, 1, self._logits.shape[2])
        else:
            logits = request.step(fed, request.state)
        unpenalised = _log_probs(logits, active)
        # until the next step, or malloc would give the memory back and ask for it again
        self._logits, self._log_probs = logits, unpenalised
        worst = unpenalised[:, :, 0].amax(1)  # (l,) one NaN or +inf turns its whole row into NaN
        log_probs = unpenalised
        if options.repetition_penalty > 1:
            log_probs = penalise_repeats(log_probs, active.tokens, options.repetition_penalty)
        for apply in self._filters:
            apply(log_probs, active)
        log_probs = _with_bonuses(log_probs, active, request)
        candidates = self._strategy(log_probs, active)
        if log_probs is not unpenalised:
            full = active.at_limit
            if options.free_end and full is not None:
                unpenalised[:, :, request.eos].masked_fill_(full, 0.0)
            candidates = candidates._replace(
                unpenalised=_unpenalised(unpenalised, active, candidates)
            )
        bonus = None
        if hooks.end_bonus is not None:
            bonus = hooks.end_bonus(request.state).view_as(active.log_probs)
        return StepOutcome(candidates, worst, bonus)


def _criterion(request: SearchRequest[S], limits: list[int]) -> StoppingCriterion | None:
    ended = request.ended
    if not request.ends_at_limit:
        return ended
    return lambda i, ids: len(ids) >= limits[i] or (ended is not None and ended(i, ids))


def _block(step: SearchStep[S], active: ActiveHypotheses) -> Block | None:
    """A block of steps on a far device, for a Transformer's decoder and options of tensors alone.

    Read after each step: what works on lists of ids (constraints, banned phrases, hotwords,
    prefixes, stop strings, filters of a task), auxiliary models, a beam that still grows.
    """
    request = step.request
    state, options, hooks = request.state, request.options, request.hooks
    if is_at_hand(request.prefix.values) or active.width < options.width:
        return None
    lists = [(c.prefix, c.trie, c.banned, c.hotwords) for c in hooks.sentence_constraints]
    beside = (request.ended, hooks.token_bonus, hooks.end_bonus, hooks.filters, request.is_watched)
    if any(beside) or any(map(any, lists)) or not isinstance(state, DecoderState | WindowedState):
        return None
    steps = min(BLOCK, max(active.limits) + 1 - active.length)
    if not state.reserve(steps, len(active.sentences)):
        return None
    return Block(step, state, lambda c: split(c, request.eos, options)[0], active, steps)


def _strategy(
    request: SearchRequest[S], limits: Sequence[int], tracker: ConstraintTracker | None
) -> Strategy:
    options = request.options
    if options.method == "sample":
        numbers = torch.from_numpy(uniforms(options, request.streams or range(len(limits)), limits))
        return partial(random_sampling, options, numbers.to(request.prefix.values.device))
    if tracker is not None:
        return partial(constrained_beam_search, options.beam_size, tracker)
    if options.beam_groups > 1:
        groups = options.beam_groups, options.diversity
        return partial(diverse_beam_search, options.beam_size, *groups)
    return partial(beam_search, options.beam_size)


def _filters(request: SearchRequest[S], n: int, tracker: ConstraintTracker | None) -> list[Filter]:
    options, eos, constraints = request.options, request.eos, request.hooks.sentence_constraints
    device = request.prefix.values.device
    filters: list[Filter] = [
        partial(forbid, torch.tensor(request.forbidden, device=device, dtype=torch.long)),
        partial(bound_length, eos, options.free_end),
    ]
    min_lengths = [max(options.min_length, each.min_length) for each in constraints]
    min_lengths = min_lengths or [options.min_length] * n
    if any(min_lengths):
        filters.append(partial(forbid_early_end, eos, torch.tensor(min_lengths, device=device)))
    if options.no_repeat_ngram:
        filters.append(partial(no_repeats, options.no_repeat_ngram))
    if any(each.banned for each in constraints):
        filters.append(partial(ban_phrases, constraints))
    if tracker is not None:
        filters.append(partial(require_constraints, eos, tracker))
    filters += request.hooks.filters
    if any(each.prefix for each in constraints):
        return [partial(force_prefix, constraints, filters)]
    return filters


def _all_at_limit(active: ActiveHypotheses, options: DecodingOptions, hooks: SearchHooks) -> bool:
    """True if all hypotheses can only end now, so that a free end needs no step of the model."""
    alone = hooks.token_bonus is None and hooks.end_bonus is None
    alone = alone and not any(each.hotwords for each in hooks.sentence_constraints)
    full = len(active.full) == len(active.limits)
    return alone and options.repetition_penalty == 1 and full and active.length > 0


def _log_probs(logits: Tensor, active: ActiveHypotheses) -> Tensor:
    """Log-probabilities (l, w, v) of the last of logits (r, t, v)."""
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    last = logits[:, -1].view(len(active.sentences), active.width, -1)
    return last.log_softmax(2, dtype=dtype)


def _with_bonuses(log_probs: Tensor, active: ActiveHypotheses, request: SearchRequest[S]) -> Tensor:
    """Log-probabilities (l, w, v) for ranking; the same tensor if nothing is added."""
    hooks = request.hooks
    bonus = hotword_bonus(hooks.sentence_constraints, active, log_probs)
    if hooks.token_bonus is not None:
        more = hooks.token_bonus(request.state).view_as(log_probs)
        bonus = more if bonus is None else bonus + more
    if bonus is None:
        return log_probs
    full = active.at_limit
    if request.options.free_end and full is not None:
        bonus = bonus.clone()
        bonus[:, :, request.eos].masked_fill_(full, 0.0)
    return log_probs + bonus


def _unpenalised(
    unpenalised: Tensor, active: ActiveHypotheses, candidates: BeamCandidates
) -> Tensor:
    """(l, c) log-probability of each candidate under the model alone."""
    # the same at the first step
    so_far = active.log_probs if active.unpenalised is None else active.unpenalised
    v = unpenalised.shape[2]
    added = unpenalised.flatten(1).gather(1, candidates.parents * v + candidates.tokens)
    return so_far.gather(1, candidates.parents) + added


def _extended(active: ActiveHypotheses, continuing: BeamCandidates) -> Tensor:
    """(l, w, length + 1) ids of the hypotheses with their new token."""
    if active.width == 1:  # the first step, and greedy search: there is one parent
        past = active.tokens.expand(-1, continuing.parents.shape[1], -1)
    else:
        past = active.tokens.gather(
            1, continuing.parents.unsqueeze(2).expand(-1, -1, active.length)
        )
    return torch.cat([past, continuing.tokens.unsqueeze(2)], 2)


def _compacted(keep: list[int]) -> list[int]:
    """Indices of the kept hypotheses, the last moved into gaps."""
    n = len(keep)
    last = [slot for slot in keep if slot >= n]
    staying = set(keep)
    return [slot if slot in staying else last.pop() for slot in range(n)]


def _advance(
    active: ActiveHypotheses, continuing: BeamCandidates, extended: Tensor, keep: list[int]
) -> ActiveHypotheses:
    if len(keep) == len(active.sentences):
        return ActiveHypotheses(
            active.sentences, active.limits, continuing.log_probs, extended, continuing.unpenalised
        )
    rows = torch.tensor(keep, dtype=torch.long, device=extended.device)
    return ActiveHypotheses(
        [active.sentences[i] for i in keep],
        [active.limits[i] for i in keep],
        continuing.log_probs[rows],
        extended[rows],
        None if continuing.unpenalised is None else continuing.unpenalised[rows],
    )


def _select(state: SearchState, old: ActiveHypotheses, parents: Tensor, keep: list[int]) -> None:
    """Reorder the state by `parents` (l, w) of the kept sentences; no work if nothing moves."""
    if old.width == parents.shape[1] == 1 and len(keep) == len(old.sentences):
        return  # greedy search goes on where it was
    every = torch.arange(len(old.sentences) * old.width, device=parents.device)
    rows = every[:: old.width, None] + parents
    if len(keep) < len(old.sentences):
        rows = rows[torch.tensor(keep, device=parents.device)]
    rows = rows.flatten()
    if not is_at_hand(rows) or not torch.equal(rows, every):
        state.select(rows)
