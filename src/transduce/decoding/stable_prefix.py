"""The stable prefix of an unfinished search, for streaming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from transduce.decoding.hypotheses import DEAD
from transduce.decoding.search import Snapshot


def stable_prefix(snapshot: Snapshot) -> list[int]:
    """Ids that every possible result of a search for one sentence begins with."""
    candidates = [hypothesis.tokens for hypothesis in snapshot.best[0]]
    for ids, log_probs in zip(snapshot.active.tokens, snapshot.active.log_probs, strict=True):
        alive = ids[log_probs > DEAD]
        candidates += alive.tolist()
    return list(_common_prefix(candidates))


def _common_prefix(rows: Iterable[Sequence[int]]) -> Iterator[int]:
    for column in zip(*rows, strict=False):
        if len(set(column)) > 1:
            return
        yield column[0]
