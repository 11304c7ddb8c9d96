"""Lexically constrained search: filters and bonuses of a step, and a beam with a bank for every
number of constraints met.

Dynamic beam allocation (Post and Vilar 2018): hypotheses that meet equally many constraints form a
bank, and the banks get beam slots in turn, so that likelier hypotheses do not crowd out those that
advance a phrase at a low score.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.decoding.constraints import ConstraintState, ConstraintTrie, OutputConstraints
from transduce.decoding.hypotheses import DEAD, ActiveHypotheses, BeamCandidates
from transduce.decoding.strategies import Filter, beam_search, topk


def ban_phrases(
    sentence_constraints: Sequence[OutputConstraints], log_probs: Tensor, active: ActiveHypotheses
) -> None:
    """Rule out tokens that complete a banned phrase.

    sentence_constraints: of each sentence.  log_probs: (l, w, v), changed in place.  active: live
    hypotheses.
    """
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
    """Force the prefix of each sentence; the filters apply to all others.

    sentence_constraints: of each sentence.  log_probs: (l, w, v), changed in place.  active: live
    hypotheses.
    """
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
    """Bonuses (l, w, v) of the next tokens; None without hotwords.

    sentence_constraints: of each sentence.  active: live hypotheses.  log_probs: (l, w, v), not
    changed.
    """
    if not any(each.hotwords for each in sentence_constraints):
        return None
    bonus = log_probs.new_zeros(log_probs.shape)
    for i, sentence in enumerate(active.sentences):
        hotwords = sentence_constraints[sentence].hotwords
        if hotwords is not None:
            for j, ids in enumerate(active.tokens[i].tolist()):
                hotwords.add_to(bonus[i, j], hotwords.match(ids))
    return bonus


Extension = tuple[float, int, int, int]
"""Continuation: log-probability of the hypothesis, its parent, the token, tokens needed."""


class ConstraintTracker:
    """Constraint states of the active hypotheses."""

    def __init__(self, tries: Sequence[ConstraintTrie | None]) -> None:
        """tries: (n) of each sentence."""
        self.tries = tries
        self._known: dict[int, dict[tuple[int, ...], ConstraintState]] = {}
        self._seen: ActiveHypotheses | None = None
        self._places: list[tuple[int, ConstraintTrie, list[ConstraintState]]] = []

    def progress(
        self, active: ActiveHypotheses
    ) -> list[tuple[int, ConstraintTrie, list[ConstraintState]]]:
        """For each active sentence with constraints: its position, its trie, its (w) states."""
        if self._seen is not active:
            self._seen = active
            self._places = []
            for i, sentence in enumerate(active.sentences):
                trie = self.tries[sentence]
                if trie is not None:
                    rows = self._follow(sentence, trie, active.tokens[i].tolist())
                    self._places.append((i, trie, rows))
        return self._places

    def _follow(
        self, sentence: int, trie: ConstraintTrie, rows: list[list[int]]
    ) -> list[ConstraintState]:
        before = self._known.get(sentence, {})
        now = {}
        for ids in map(tuple, rows):
            past = before.get(ids[:-1]) if ids else None
            if past is None:  # the beginning, or a dead row
                past = ConstraintState()
                for token in ids[:-1]:
                    past = trie.next(past, token)
            now[ids] = trie.next(past, ids[-1]) if ids else past
        self._known[sentence] = now
        return [now[tuple(ids)] for ids in rows]


def require_constraints(
    eos: int, tracker: ConstraintTracker, log_probs: Tensor, active: ActiveHypotheses
) -> None:
    """Forbid an end before all phrases are met, and tokens that leave too little room for them,
    except for constraints that never fit.

    eos: id of the end.  tracker: progress of each hypothesis in its phrases.  log_probs: (l, w, v),
    changed in place.  active: live hypotheses.
    """
    for i, trie, rows in tracker.progress(active):
        room = active.limits[i] - active.length
        for j, progress in enumerate(rows):
            if 0 < trie.needed(progress) <= room:
                log_probs[i, j, eos] = DEAD
                _keep_room(log_probs[i, j], trie, progress, room - 1)
            elif room and not trie.needed(progress) and trie.undoes(progress):
                _keep_room(log_probs[i, j], trie, progress, room - 1)


def _keep_room(row: Tensor, trie: ConstraintTrie, progress: ConstraintState, room: int) -> None:
    """Keep the log-probabilities (v) after which `room` suffices; the rest become -inf."""
    if trie.needed_anew(progress.met) > room:
        forbidden = None  # all tokens that do not continue a phrase
    elif trie.undoes(progress) and trie.needed_anew(progress.met & ~progress.fresh) > room:
        forbidden = trie.continuing
    else:
        return
    ways = [t for t, after in trie.onward(progress) if trie.needed(after) <= room]
    columns = torch.tensor(ways, dtype=torch.long, device=row.device)
    unpenalised = row[columns]
    if forbidden is None:
        row.fill_(DEAD)
    else:
        row[torch.tensor(forbidden, device=row.device)] = DEAD
    row[columns] = unpenalised


def constrained_beam_search(
    beam_size: int, tracker: ConstraintTracker, log_probs: Tensor, active: ActiveHypotheses
) -> BeamCandidates:
    """The best 2 * beam_size continuations of each sentence, taken from its banks in turn: of one
    round, first the continuation with the fewest missing tokens.  A sentence without phrases has
    one bank: plain beam search.

    tracker: progress of each hypothesis in its phrases.  log_probs: (l, w, v).  active: live
    hypotheses.
    """
    places = tracker.progress(active)
    if not places:
        return beam_search(beam_size, log_probs, active)
    some = torch.tensor([i for i, _, _ in places], device=log_probs.device)
    totals = log_probs[some] + active.log_probs[some].unsqueeze(2)  # (some, w, v)
    rows = totals.flatten(0, 1)
    candidates = beam_search(beam_size, log_probs, active)  # which overwrites log_probs
    count = candidates.tokens.shape[1]
    best = (part.view(*totals.shape[:2], -1) for part in topk(rows, min(count, rows.shape[1])))
    each = zip(places, totals, *(part.tolist() for part in best), strict=True)
    for (i, trie, progress), row_log_probs, values, tokens in each:
        ways = _ways(row_log_probs, values, tokens, trie, progress)
        chosen = _in_turns(ways)[:count]
        chosen += [(DEAD, 0, 0, 0)] * (count - len(chosen))
        scores, parents, ids, _ = zip(*chosen, strict=True)
        candidates.log_probs[i] = row_log_probs.new_tensor(scores)
        candidates.parents[i] = candidates.parents.new_tensor(parents)
        candidates.tokens[i] = candidates.tokens.new_tensor(ids)
    return candidates


def _ways(
    totals: Tensor,
    values: list[list[float]],
    tokens: list[list[int]],
    trie: ConstraintTrie,
    rows: Sequence[ConstraintState],
) -> list[Extension]:
    """Best continuations of each hypothesis, and all that advance a phrase; best first.

    totals (w, v); values, tokens (w, k): the largest of each row of it.
    """
    ways: dict[tuple[int, int], Extension] = {}
    for j, progress in enumerate(rows):
        needed = {token: trie.needed(after) for token, after in trie.onward(progress)}
        left = trie.needed_anew(progress.met)
        undone = trie.needed_anew(progress.met & ~progress.fresh)
        for value, token in zip(values[j], tokens[j], strict=True):
            other = undone if undone > left and token in trie.continues else left
            ways[j, token] = (value, j, token, needed.get(token, other))
        now = trie.needed(progress)
        if onwards := [token for token, after in needed.items() if after < now]:
            at = torch.tensor(onwards, device=totals.device)
            for value, token in zip(totals[j, at].tolist(), onwards, strict=True):
                ways[j, token] = (value, j, token, needed[token])
    live = [way for way in ways.values() if way[0] > DEAD] or list(ways.values())
    return sorted(live, key=lambda way: (-way[0], way[1], way[2]))


def _in_turns(ways: Sequence[Extension]) -> list[Extension]:
    slots: dict[int, int] = {}
    turns = []
    for way in ways:
        turn = slots.get(way[3], 0)
        slots[way[3]] = turn + 1
        turns.append((turn, way[3]))
    order = sorted(range(len(ways)), key=turns.__getitem__)  # stable
    return [ways[i] for i in order]
