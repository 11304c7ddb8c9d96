"""Phrases that an output must hold: what may come next, and a beam with room for every stage.

Dynamic beam allocation (Post and Vilar 2018): hypotheses that hold equally much of what is asked
for form a bank, and the places of the beam go round the banks, so that the dear ones which go
towards a phrase are not crowded out by the cheap ones which do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from transduce.decoding.choosers import Chooser, choose_best
from transduce.decoding.filters import Filter
from transduce.decoding.hypotheses import DEAD, Candidates, Live
from transduce.decoding.largest import largest
from transduce.decoding.phrases import Phrases, Progress

Way = tuple[float, int, int, int]
"""One way to go on: log-probability of the hypothesis, its parent, the token, tokens needed."""


class Tracker:
    """How far each live hypothesis is with the phrases of its sentence."""

    def __init__(self, phrases: Sequence[Phrases | None]) -> None:
        """phrases: (n) of each sentence."""
        self.phrases = phrases
        self._known: dict[int, dict[tuple[int, ...], Progress]] = {}
        self._seen: Live | None = None
        self._places: list[tuple[int, Phrases, list[Progress]]] = []

    def progress(self, live: Live) -> list[tuple[int, Phrases, list[Progress]]]:
        """Of each live sentence with phrases: its place, its phrases, (w) its hypotheses."""
        if self._seen is not live:
            self._seen = live
            self._places = []
            for i, sentence in enumerate(live.sentences):
                phrases = self.phrases[sentence]
                if phrases is not None:
                    rows = self._follow(sentence, phrases, live.tokens[i].tolist())
                    self._places.append((i, phrases, rows))
        return self._places

    def _follow(self, sentence: int, phrases: Phrases, rows: list[list[int]]) -> list[Progress]:
        before = self._known.get(sentence, {})
        now = {}
        for ids in map(tuple, rows):
            past = before.get(ids[:-1]) if ids else None
            if past is None:  # the beginning, or a dead row
                past = Progress()
                for token in ids[:-1]:
                    past = phrases.next(past, token)
            now[ids] = phrases.next(past, ids[-1]) if ids else past
        self._known[sentence] = now
        return [now[tuple(ids)] for ids in rows]


def hold_phrases(eos: int, tracker: Tracker) -> Filter:
    """No end before all phrases are there, and no token that leaves too little room for them.

    Where the room is too little from the beginning, nothing is asked.
    """

    def apply(log_probs: Tensor, live: Live) -> None:
        for i, phrases, rows in tracker.progress(live):
            room = live.limits[i] - live.length
            for j, progress in enumerate(rows):
                if 0 < phrases.needed(progress) <= room:
                    log_probs[i, j, eos] = DEAD
                    _keep_room(log_probs[i, j], phrases, progress, room - 1)
                elif room and not phrases.needed(progress) and phrases.undoes(progress):
                    _keep_room(log_probs[i, j], phrases, progress, room - 1)

    return apply


def _keep_room(row: Tensor, phrases: Phrases, progress: Progress, room: int) -> None:
    """Of log-probabilities (v), only those after which `room` is enough."""
    if phrases.needed_anew(progress.met) > room:
        forbidden = None  # all but what goes on with a phrase
    elif phrases.undoes(progress) and phrases.needed_anew(progress.met & ~progress.fresh) > room:
        forbidden = phrases.continuing
    else:
        return
    ways = [t for t, after in phrases.onward(progress) if phrases.needed(after) <= room]
    kept = torch.tensor(ways, dtype=torch.long, device=row.device)
    own = row[kept]
    if forbidden is None:
        row.fill_(DEAD)
    else:
        row[torch.tensor(forbidden, device=row.device)] = DEAD
    row[kept] = own


def choose_constrained(beam_size: int, tracker: Tracker) -> Chooser:
    """The best 2 * beam_size continuations of each sentence, taken from its banks in turn.

    Each bank gives its best, then each its second best, and so on; of one round, the one that
    needs least goes first.  A sentence without phrases has one bank, and so the plain best.
    """
    plain = choose_best(beam_size)

    def choose(log_probs: Tensor, live: Live) -> Candidates:
        places = tracker.progress(live)
        if not places:
            return plain(log_probs, live)
        some = torch.tensor([i for i, _, _ in places], device=log_probs.device)
        totals = log_probs[some] + live.log_probs[some].unsqueeze(2)  # (some, w, v)
        rows = totals.flatten(0, 1)
        found = plain(log_probs, live)  # which may overwrite them
        count = found.tokens.shape[1]
        best = (
            part.view(*totals.shape[:2], -1) for part in largest(rows, min(count, rows.shape[1]))
        )
        each = zip(places, totals, *(part.tolist() for part in best), strict=True)
        for (i, phrases, progress), own, values, tokens in each:
            ways = _ways(own, values, tokens, phrases, progress)
            chosen = _in_turns(ways)[:count]
            chosen += [(DEAD, 0, 0, 0)] * (count - len(chosen))
            scores, parents, ids, _ = zip(*chosen, strict=True)
            found.log_probs[i] = own.new_tensor(scores)
            found.parents[i] = found.parents.new_tensor(parents)
            found.tokens[i] = found.tokens.new_tensor(ids)
        return found

    return choose


def _ways(
    totals: Tensor,
    values: list[list[float]],
    tokens: list[list[int]],
    phrases: Phrases,
    rows: Sequence[Progress],
) -> list[Way]:
    """The best of each hypothesis, and all that goes on with a phrase; best first.

    totals (w, v); values, tokens (w, k): the largest of each row of it.
    """
    ways: dict[tuple[int, int], Way] = {}
    for j, progress in enumerate(rows):
        needed = {token: phrases.needed(after) for token, after in phrases.onward(progress)}
        left = phrases.needed_anew(progress.met)
        undone = phrases.needed_anew(progress.met & ~progress.fresh)
        for value, token in zip(values[j], tokens[j], strict=True):
            other = undone if undone > left and token in phrases.continues else left
            ways[j, token] = (value, j, token, needed.get(token, other))
        now = phrases.needed(progress)
        if onwards := [token for token, after in needed.items() if after < now]:
            at = torch.tensor(onwards, device=totals.device)
            for value, token in zip(totals[j, at].tolist(), onwards, strict=True):
                ways[j, token] = (value, j, token, needed[token])
    kept = [way for way in ways.values() if way[0] > DEAD] or list(ways.values())
    return sorted(kept, key=lambda way: (-way[0], way[1], way[2]))


def _in_turns(ways: Sequence[Way]) -> list[Way]:
    """Ways, best first, in the order in which the banks give them."""
    given: dict[int, int] = {}
    turns = []
    for way in ways:
        turn = given.get(way[3], 0)
        given[way[3]] = turn + 1
        turns.append((turn, way[3]))
    order = sorted(range(len(ways)), key=turns.__getitem__)  # stable
    return [ways[i] for i in order]
