"""Several readers that take turns at the batches of one stream."""

import functools
import itertools
from collections.abc import Iterator

import pytest

from transduce.data.batches import DataState, RankDataState, for_rank, resumable


@pytest.mark.parametrize("every", [1, 2, 3, 7])
def test_readers_that_take_turns_have_all_batches_once(every: int) -> None:
    def batches(state: DataState) -> Iterator[tuple[str, DataState]]:
        return resumable(lambda epoch: 4 + epoch, lambda epoch, i: f"{epoch}.{i}", state)

    whole = list(itertools.islice(batches(DataState(1, 2)), 4 * every))
    for find in (batches, functools.partial(for_rank, lambda state: batches(state))):
        readers = [
            itertools.islice(find(RankDataState(1, 2, turn, every)), 4) for turn in range(every)
        ]
        assert [one for batch in zip(*readers, strict=True) for one in batch] == whole


def test_a_batch_that_is_another_readers_is_not_made() -> None:
    made: list[int] = []

    def make(epoch: int, i: int) -> int:
        made.append(i)
        return i

    list(itertools.islice(resumable(lambda _: 9, make, RankDataState(0, 0, 1, 3)), 3))
    assert made == [1, 4, 7]
