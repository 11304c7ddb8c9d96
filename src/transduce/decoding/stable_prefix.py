"""The stable prefix of an unfinished search, for streaming."""

from __future__ import annotations

import itertools

from transduce.decoding.hypotheses import DEAD
from transduce.decoding.search import Snapshot


def stable_prefix(snapshot: Snapshot) -> list[int]:
    """Ids that every possible result of a search for a sentence begins with."""
    candidates = [hypothesis.tokens for hypothesis in snapshot.best[0]]
    for ids, log_probs in zip(snapshot.active.tokens, snapshot.active.log_probs, strict=True):
        alive = ids[log_probs > DEAD]
        candidates += alive.tolist()
    columns = zip(*candidates, strict=False)
    return [ids[0] for ids in itertools.takewhile(lambda ids: len(set(ids)) == 1, columns)]
