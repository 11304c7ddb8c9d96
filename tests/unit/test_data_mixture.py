"""Several corpora in one stream of batches, each as often as its weight says."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.data.batches import DataState, PairBatch, TokenBatches, pair_batches
from transduce.data.encoded import EncodedPairs, MixedPairs
from transduce.errors import DataError
from transduce.text.tokenizer import BOS, EOS

SEED = 5


class Arrays(SimpleNamespace):
    """Encoded pairs in memory."""

    def __len__(self) -> int:
        return len(self.source_offsets) - 1


def corpus(n: int, first: int, dtype: Any = np.uint16) -> EncodedPairs:
    """`n` pairs of 1 to 7 tokens a side; the ids of pair i are `first` + i, on the target + 500."""

    def side(name: str, lengths: Any, ids: Any) -> dict[str, Any]:
        return {
            f"{name}_tokens": np.repeat(ids, lengths).astype(dtype),
            f"{name}_offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            f"{name}_lengths": lengths.astype(np.int32),
        }

    ids = first + np.arange(n)
    source, target = 1 + np.arange(n) % 7, 1 + np.arange(n) * 3 % 5
    made = {**side("source", source, ids), **side("target", target, ids + 500)}
    return cast("EncodedPairs", Arrays(**made))


def epoch_of(batches: TokenBatches[PairBatch], epoch: int) -> list[PairBatch]:
    result = []
    for batch, state in batches.iterate(DataState(epoch, 0)):
        result.append(batch)
        if state.epoch != epoch:
            return result
    raise AssertionError


def seen(mixed: MixedPairs, epochs: range) -> Counter[int]:
    return Counter(row for epoch in epochs for row in mixed.epoch(epoch, SEED).tolist())


def test_an_epoch_sees_a_corpus_as_often_as_its_weight_says() -> None:
    mixed = MixedPairs([corpus(12, 10), corpus(40, 100), corpus(5, 300)], [1.0, 0.25, 2.0])
    for epoch in range(4):
        counts = seen(mixed, range(epoch, epoch + 1))
        assert all(counts[row] == 1 for row in range(12))
        assert sum(counts[row] for row in range(12, 52)) == 10
        assert max(counts[row] for row in range(12, 52)) == 1
        assert all(counts[row] == 2 for row in range(52, 57))


@pytest.mark.parametrize("size", [3, 49, 100, 107])
def test_no_epoch_is_empty_by_rounding(size: int) -> None:
    """In floating point 29 · 0.01 · 100 is less than 29; 1 / 3 is less than a third."""
    mixed = MixedPairs([corpus(size, 10)], [1 / size])
    assert [len(mixed.epoch(epoch, SEED)) for epoch in range(200)] == [1] * 200


def test_every_sample_is_new_until_all_were_seen() -> None:
    mixed = MixedPairs([corpus(40, 10)], [0.25])
    samples = [frozenset(mixed.epoch(epoch, SEED).tolist()) for epoch in range(8)]
    assert frozenset().union(*samples[:4]) == frozenset().union(*samples[4:]) == set(range(40))
    assert samples[:4] != samples[4:]  # another random order
    assert samples[0] != set(range(10))
    assert mixed.epoch(0, SEED).tolist() != mixed.epoch(0, SEED + 1).tolist()


@given(
    st.lists(st.tuples(st.integers(1, 30), st.floats(0.05, 3.5)), min_size=1, max_size=3),
    st.integers(1, 6),
)
def test_no_pair_gets_ahead_of_another_of_its_corpus(
    shape: list[tuple[int, float]], epochs: int
) -> None:
    if all(n * weight < 1 for n, weight in shape):
        return
    mixed = MixedPairs([corpus(n, 4) for n, _ in shape], [weight for _, weight in shape])
    counts = seen(mixed, range(epochs))
    first = 0
    for n, weight in shape:
        own = [counts[row] for row in range(first, first + n)]
        assert max(own) - min(own) <= 1
        assert sum(own) == int(epochs * Fraction(weight).limit_denominator(10**9) * n)
        first += n


def test_batches_hold_the_ids_of_the_right_corpus() -> None:
    parts = [corpus(20, 10), corpus(30, 100_000, np.int32)]
    batches = pair_batches(MixedPairs(parts, [1.0, 1.0]), 60, SEED)
    both = 0
    rows = []
    for batch in epoch_of(batches, 0):
        both += len({bool(row < 20) for row in batch.rows.tolist()}) == 2
        rows += batch.rows.tolist()
        for i, row in enumerate(batch.rows.tolist()):
            number, name = (row, 10 + row) if row < 20 else (row - 20, 100_000 + row - 20)
            source = [name] * (1 + number % 7) + [EOS]
            target = [BOS, *[name + 500] * (1 + number * 3 % 5), EOS]
            assert batch.source.values[i][batch.source.real[i]].tolist() == source
            assert batch.target.values[i][batch.target.real[i]].tolist() == target
        assert batch.target_tokens == int(batch.target.real.sum()) - len(batch.rows)
        assert max(batch.source.values.numel(), batch.target.values.numel()) <= 60
    assert sorted(rows) == list(range(50))
    assert both > 1  # batches are of both, not of one after the other


def test_one_corpus_of_weight_one_gives_its_own_batches() -> None:
    data = corpus(50, 10)
    plain = pair_batches(data, 60, SEED)
    mixed = pair_batches(MixedPairs([data], [1.0]), 60, SEED)
    for a, b in zip(epoch_of(plain, 1), epoch_of(mixed, 1), strict=True):
        assert torch.equal(a.source.values, b.source.values)
        assert torch.equal(a.target.values, b.target.values)


@settings(max_examples=25)
@given(st.floats(0.1, 2.5), st.data())
def test_resuming_anywhere_gives_the_same_batches(weight: float, draw: st.DataObject) -> None:
    def fresh() -> TokenBatches[PairBatch]:
        return pair_batches(MixedPairs([corpus(15, 10), corpus(33, 200)], [1.0, weight]), 40, SEED)

    whole = list(itertools.islice(fresh().iterate(), 60))
    cut = draw.draw(st.integers(0, len(whole) - 2))
    resumed = fresh().iterate(whole[cut][1])
    for (batch, state), (expected, after) in zip(resumed, whole[cut + 1 :], strict=False):
        assert np.array_equal(batch.rows, expected.rows)
        assert torch.equal(batch.source.values, expected.source.values)
        assert state == after


def test_an_epoch_without_pairs_is_refused() -> None:
    with pytest.raises(DataError, match=r"of \[3, 4\] pairs give an empty epoch"):
        MixedPairs([corpus(3, 10), corpus(4, 20)], [0.3, 0.2])
