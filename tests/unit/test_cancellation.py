"""A cancelled sentence leaves its batch; all others come out as they would have."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.toy_search import ToyState, decode, toy

OPTIONS: list[dict[str, Any]] = [
    {"beam_size": 1},
    {"beam_size": 4, "n_best": 4},
    {"beam_size": 4, "beam_groups": 2, "n_best": 2},
    {"method": "sample", "n_best": 3},
]


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
@pytest.mark.parametrize("gone", [{0}, {1, 3}, {0, 1, 2, 3, 4}])
def test_the_others_of_a_search_are_unchanged(options: dict[str, Any], gone: set[int]) -> None:
    model = toy(5)
    whole = decode(model, range(5), 6, **options)
    n_rows = sum(model.rows_seen)
    asked: dict[int, int] = {}

    def cancelled(sentence: int) -> bool:
        asked[sentence] = asked.get(sentence, 0) + 1
        return sentence in gone and asked[sentence] == 2

    model.rows_seen.clear()
    found = decode(model, range(5), 6, cancelled=cancelled, **options)
    for i, (own, right) in enumerate(zip(found, whole, strict=True)):
        if i not in gone:
            assert own == right
        else:
            assert asked[i] <= 2
    assert sum(model.rows_seen) < n_rows


def test_a_hook_that_never_cancels_changes_nothing() -> None:
    whole, state = decode(toy(5), range(5), 6), ToyState(range(5))
    assert decode(toy(5), range(5), 6, state=state, cancelled=lambda sentence: False) == whole
