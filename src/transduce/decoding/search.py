"""The one loop of every search: beam search, greedy search and sampling.

It sees a model only as a `step` from token ids to logits, and a state whose rows it can select.
What may come next (`filters`), how to go on (`choosers`) and when a sentence is done
(`stopping`) are parts that it is given by the options; `results` keeps what has ended.

`search` gives the results; `search_steps` shows in addition how they come about, step by step.

Hypotheses of a sentence stand side by side, w rows for each of l sentences, so that a state can
keep what belongs to the sentence once.  A sentence that is done leaves the batch at once.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from transduce.decoding.choosers import Chooser, choose_best, choose_diverse, choose_random
from transduce.decoding.constrained import Tracker, choose_constrained, hold_phrases
from transduce.decoding.demands import NO_WISHES, Wishes, avoid, begin
from transduce.decoding.filters import (
    Filter,
    apply_all,
    bound_length,
    forbid,
    no_repeats,
    penalise_repeats,
)
from transduce.decoding.hypotheses import DEAD, Candidates, Hypothesis, Live
from transduce.decoding.options import DecodingOptions
from transduce.decoding.results import Ended, Results
from transduce.sequence import Padded


class State(Protocol):
    """What a model remembers of each hypothesis."""

    def select(self, rows: Tensor) -> None:
        """Go on with hypotheses `rows` (r',), in that order; repeats and omissions allowed."""


S = TypeVar("S", bound=State)


class Snapshot(NamedTuple):
    """How far a search has come.

    live: hypotheses still growing; at the end there are no sentences in it.
    best: (n) for each sentence its `n_best` finished hypotheses so far, best first.
    """

    live: Live
    best: list[list[Hypothesis]]


@dataclass(frozen=True)
class SearchRequest(Generic[S]):
    """A search: the model's step, its state, and the limits, options and hooks of the search.

    step:        ids (r, t) and state -> logits (r, t', v), t' >= 1, of which the last count; the
                 state moves on by t.
    state:       of n rows, one for each sentence; the search moves it.
    prefix:      (n, p) ids that start every hypothesis: the beginning of sentence, and after it
                 whatever is forced.  Padding stands on the left of shorter ones.
    max_lengths: (n,) most tokens after the prefix, the end of sentence not counted.
    eos:         id of the end of sentence.
    forbidden:   ids never to be emitted, such as the beginning of sentence and the padding.
    streams:     (n) numbers >= 0 that tell sentences apart in sampling, such as line numbers;
                 their place in the batch if None.
    ended:       where else than at an end of sentence a hypothesis ends.
    wishes:      constraints of each sentence, and bonuses beside the model's log-probabilities.
    cancelled:   called after each step with the place of each live sentence; one for which it is
                 true leaves the batch with the hypotheses that have finished by then.
    """

    step: Callable[[Padded, S], Tensor]
    state: S
    prefix: Padded
    max_lengths: Tensor
    eos: int
    forbidden: Sequence[int]
    options: DecodingOptions
    streams: Sequence[int] | None = None
    ended: Ended | None = None
    wishes: Wishes = NO_WISHES
    cancelled: Callable[[int], bool] | None = None


def search(request: SearchRequest[S]) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of each sentence, best first; fewer where there are no more.

    Log-probabilities are over the whole vocabulary, in float32 unless the logits are float64.
    Raises TransduceError when the model's logits are not numbers.
    """
    return collections.deque(search_steps(request), maxlen=1).pop().best


@torch.inference_mode()
def search_steps(request: SearchRequest[S]) -> Iterator[Snapshot]:
    """The same search, seen before its first step and after each; the last one has the results."""
    state, options, wishes = request.state, request.options, request.wishes
    prefix, eos = request.prefix, request.eos
    assert prefix.padding != "right", "prefixes end at the same column"
    limits: list[int] = request.max_lengths.tolist()
    for i, demand in enumerate(wishes.demands):
        limits[i] = max(limits[i], len(demand.prefix))
    tracker = _tracker(wishes)
    chooser = _chooser(options, request.streams or range(len(limits)), limits, tracker)
    filters = _filters(request, tracker, len(limits))
    results = Results(options, len(limits), request.ended)
    fed, live = prefix, _start(prefix.values, limits)
    logits = live.log_probs
    yield Snapshot(live, results.best)
    while live.sentences:
        if _is_foregone(live, options, wishes):
            logits = logits.new_zeros(live.log_probs.numel(), 1, logits.shape[2])
        else:
            logits = request.step(fed, state)
        own = _log_probs(logits, live)
        worst = own[:, :, 0].amax(1)  # (l,) one NaN or +inf turns its whole row into NaN
        log_probs = _adjusted(own, live, state, options, wishes)
        apply_all(filters, log_probs, live)
        candidates = chooser(log_probs, live)
        if log_probs is not own:
            if options.free_end:
                own[live.full, :, eos] = 0.0
            candidates = candidates._replace(own=_own(own, live, candidates))
        going_on, ending = _split(candidates, eos, options)
        grown = _grown(live, going_on)
        going_on = results.end(live, going_on, grown)
        bonus = None if wishes.end_bonus is None else wishes.end_bonus(state).view_as(own[:, :, 0])
        keep = results.update(live, candidates, going_on, ending, worst, bonus)
        if request.cancelled is not None:
            keep = [place for place in keep if not request.cancelled(live.sentences[place])]
        keep = _closed_up(keep)
        old, live = live, _advance(live, going_on, grown, keep)
        if keep:
            _select(state, old, going_on.parents, keep)
            last = live.tokens[:, :, -1].reshape(-1, 1)  # (l, w, length) -> (r, 1)
            fed = Padded.unpadded(last)
        yield Snapshot(live, results.best)


def _tracker(wishes: Wishes) -> Tracker | None:
    phrases = [demand.phrases for demand in wishes.demands]
    return Tracker(phrases) if any(phrases) else None


def _chooser(
    options: DecodingOptions, streams: Sequence[int], limits: list[int], tracker: Tracker | None
) -> Chooser:
    if options.method == "sample":
        return choose_random(options, streams, limits)
    if tracker is not None:
        return choose_constrained(options.beam_size, tracker)
    if options.beam_groups > 1:
        return choose_diverse(options.beam_size, options.beam_groups, options.diversity)
    return choose_best(options.beam_size)


def _filters(request: SearchRequest[S], tracker: Tracker | None, n: int) -> list[Filter]:
    options, eos, demands = request.options, request.eos, request.wishes.demands
    least = [max(options.min_length, demand.min_length) for demand in demands]
    least = least or [options.min_length] * n
    filters = [forbid(request.forbidden), bound_length(eos, least, options.free_end)]
    if options.no_repeat_ngram:
        filters.append(no_repeats(options.no_repeat_ngram))
    if any(demand.avoided for demand in demands):
        filters.append(avoid(demands))
    if tracker is not None:
        filters.append(hold_phrases(eos, tracker))
    if any(demand.prefix for demand in demands):
        filters = [begin(demands, filters)]
    return filters


def _start(prefix: Tensor, limits: list[int]) -> Live:
    """One empty hypothesis for each sentence."""
    n = len(prefix)
    nothing = torch.zeros(n, 1, device=prefix.device)
    return Live(list(range(n)), limits, nothing, prefix.new_empty(n, 1, 0))


def _is_foregone(live: Live, options: DecodingOptions, wishes: Wishes) -> bool:
    """Whether all hypotheses can but end now, at no cost: then the model need not be asked."""
    alone = wishes.token_bonus is None and wishes.end_bonus is None
    plain = alone and options.repetition_penalty == 1
    full = len(live.full) == len(live.limits)
    return plain and full and options.free_end and live.length > 0


def _log_probs(logits: Tensor, live: Live) -> Tensor:
    """Log-probabilities (l, w, v) of the last of logits (r, t, v)."""
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    last = logits[:, -1].view(len(live.sentences), live.width, -1)
    return last.log_softmax(2, dtype=dtype)


def _adjusted(
    own: Tensor, live: Live, state: State, options: DecodingOptions, wishes: Wishes
) -> Tensor:
    """Log-probabilities (l, w, v) to rank by; those of the model itself where nothing is added."""
    adjusted = own
    if options.repetition_penalty > 1:
        adjusted = penalise_repeats(adjusted, live.tokens, options.repetition_penalty)
    if wishes.token_bonus is not None:
        adjusted = adjusted + wishes.token_bonus(state).view_as(own)
    return adjusted


def _own(own: Tensor, live: Live, candidates: Candidates) -> Tensor:
    """(l, c) what the model alone says of each candidate."""
    so_far = live.log_probs if live.own is None else live.own  # the same at the first step
    v = own.shape[2]
    added = own.flatten(1).gather(1, candidates.parents * v + candidates.tokens)
    return so_far.gather(1, candidates.parents) + added


def _split(
    candidates: Candidates, eos: int, options: DecodingOptions
) -> tuple[Candidates, Tensor | None]:
    """The first `width` candidates that go on, and (l, c) which ones end their sentence, if any.

    Only an end of sentence among the first `width` counts; where a beam has groups, all this is
    so in each of them.
    """
    groups = options.beam_groups if options.method == "beam" else 1
    width = options.width // groups
    ends = candidates.tokens == eos
    if groups == 1 and not bool(ends.any()):
        return candidates.first(width), None
    c = ends.shape[1] // groups
    first = torch.arange(ends.shape[1], device=ends.device) % c < width
    ending = ends & (candidates.log_probs > DEAD) & first
    going_on = candidates._replace(log_probs=candidates.log_probs.masked_fill(ends, DEAD))
    if c > width:
        grouped = ends.view(-1, groups, c).int()
        order = grouped.argsort(dim=2, stable=True)[:, :, :width]
        starts = torch.arange(0, ends.shape[1], c, device=ends.device)
        going_on = going_on.pick((order + starts[:, None]).flatten(1))
    return going_on, ending


def _grown(live: Live, going_on: Candidates) -> Tensor:
    """(l, w, length + 1) ids of the hypotheses with their new token."""
    if live.width == 1:  # the first step, and greedy search: there is one parent
        past = live.tokens.expand(-1, going_on.parents.shape[1], -1)
    else:
        past = live.tokens.gather(1, going_on.parents.unsqueeze(2).expand(-1, -1, live.length))
    return torch.cat([past, going_on.tokens.unsqueeze(2)], 2)


def _closed_up(keep: list[int]) -> list[int]:
    """The places kept, the last of them where others have left: so the state moves these alone."""
    n = len(keep)
    last = [place for place in keep if place >= n]
    kept = set(keep)
    return [place if place in kept else last.pop() for place in range(n)]


def _advance(live: Live, going_on: Candidates, grown: Tensor, keep: list[int]) -> Live:
    """The kept sentences' hypotheses, one token longer."""
    if len(keep) == len(live.sentences):
        return Live(live.sentences, live.limits, going_on.log_probs, grown, going_on.own)
    rows = torch.tensor(keep, dtype=torch.long, device=grown.device)
    return Live(
        [live.sentences[i] for i in keep],
        [live.limits[i] for i in keep],
        going_on.log_probs[rows],
        grown[rows],
        None if going_on.own is None else going_on.own[rows],
    )


def _select(state: State, old: Live, parents: Tensor, keep: list[int]) -> None:
    """Make the state follow `parents` (l, w) of the kept sentences; no work if nothing moves."""
    if old.width == parents.shape[1] == 1 and len(keep) == len(old.sentences):
        return  # greedy search goes on where it was
    every = torch.arange(len(old.sentences) * old.width, device=parents.device)
    rows = every[:: old.width, None] + parents
    if len(keep) < len(old.sentences):
        rows = rows[torch.tensor(keep, device=parents.device)]
    rows = rows.flatten()
    if not torch.equal(rows, every):
        state.select(rows)
