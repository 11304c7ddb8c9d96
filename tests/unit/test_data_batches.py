from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transduce.data.batches import (
    DataState,
    PairBatch,
    TokenBatches,
    _cut,
    _plan_batches,
    pair_batches,
)
from transduce.data.encoded import EncodedPairs
from transduce.errors import DataError
from transduce.sequence import Padded
from transduce.text.tokenizer import BOS, EOS, PAD


def data_of(rows: list[tuple[list[int], list[int]]]) -> EncodedPairs:
    """Encoded pairs in memory, with what the batches look at."""

    def side(rows: list[list[int]], name: str) -> dict[str, Any]:
        lengths = np.array([len(row) for row in rows], dtype=np.int32)
        return {
            f"{name}_tokens": np.array(list(itertools.chain(*rows)), dtype=np.uint16),
            f"{name}_offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            f"{name}_lengths": lengths,
        }

    sources = side([row[0] for row in rows], "source")
    return cast("EncodedPairs", SimpleNamespace(**sources, **side([r[1] for r in rows], "target")))


def data_of_lengths(source: Any, target: Any) -> EncodedPairs:
    """Pairs of these lengths; the ids of pair i are 4 + i, modulo something."""
    rows = [
        ([4 + i % 1000] * int(s), [4 + i % 1000] * int(t))
        for i, (s, t) in enumerate(zip(source, target, strict=True))
    ]
    return data_of(rows)


def epoch_of(batches: TokenBatches[PairBatch], epoch: int) -> list[PairBatch]:
    result = []
    for batch, state in batches.iterate(DataState(epoch, 0)):
        result.append(batch)
        if state.epoch != epoch:
            assert state == DataState(epoch + 1, 0)
            break
    return result


def same(a: PairBatch, b: PairBatch) -> bool:
    tensors = [(a.source.values, b.source.values), (a.target.values, b.target.values)]
    equal = all(torch.equal(x, y) for x, y in tensors)
    return equal and np.array_equal(a.rows, b.rows)


def words(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    source = np.clip(np.exp(rng.normal(2.0, 0.3, n)).round(), 1, 40)
    return source, np.clip((source * np.exp(rng.normal(-0.1, 0.12, n))).round(), 1, 40)


def sentences(n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    source = np.clip(np.exp(rng.normal(3.1, 0.65, n)).round(), 1, 256)
    return source, np.clip((source * np.exp(rng.normal(0.05, 0.25, n))).round(), 1, 256)


lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=60)


def test_contents_of_a_batch() -> None:
    data = data_of([([10, 11, 12], [20]), ([13], [21, 22])])
    (batch,) = pair_batches(data, 100, seed=0).in_order()
    at = {int(row): i for i, row in enumerate(batch.rows)}
    order = [at[0], at[1]]
    assert batch.source.values[order].tolist() == [[10, 11, 12, EOS], [13, EOS, PAD, PAD]]
    assert batch.source.real[order].tolist() == [[True] * 4, [True, True, False, False]]
    assert batch.target.values[order].tolist() == [[BOS, 20, EOS, PAD], [BOS, 21, 22, EOS]]
    assert batch.target.real[order].tolist() == [[True, True, True, False], [True] * 4]
    assert batch.source.values.dtype == batch.target.values.dtype == torch.long
    assert batch.target_tokens == 2 + 3
    assert batch.rows.dtype == np.int64


def test_ids_beyond_the_sign_of_16_bits() -> None:
    data = data_of([([65535], [40000])])
    (batch,) = pair_batches(data, 100, seed=0).in_order()
    assert batch.source.values.tolist() == [[65535, EOS]]
    assert batch.target.values.tolist() == [[BOS, 40000, EOS]]


def check_side(side: Padded, ids: list[Tensor], begin: int) -> None:
    """The padded rows hold these ids, marked; `padding` says "none" only when there is none."""
    assert side.padding == ("none" if side.real.all() else "right")
    for values, real, row in zip(side.values, side.real, ids, strict=True):
        n = begin + len(row) + 1
        assert real.tolist() == [True] * n + [False] * (len(real) - n)
        assert values[begin : n - 1].tolist() == row.tolist()
        assert values[:begin].tolist() == [BOS] * begin
        assert values[n - 1] == EOS
        assert (values[n:] == PAD).all()


@given(lengths, st.integers(1, 200), st.integers(0, 3))
def test_every_pair_once_an_epoch_within_the_budget(
    shape: list[tuple[int, int]], batch_tokens: int, epoch: int
) -> None:
    data = data_of_lengths(*zip(*shape, strict=True))
    batches = pair_batches(data, batch_tokens, seed=5)
    for result in (epoch_of(batches, epoch), list(batches.in_order())):
        assert sorted(row for b in result for row in b.rows.tolist()) == list(range(len(shape)))
        assert sum(b.target_tokens for b in result) == sum(t + 1 for _, t in shape)
        for batch in result:
            sizes = (batch.source.values.numel(), batch.target.values.numel())
            assert max(sizes) <= batch_tokens or len(batch.rows) == 1
            ids = [torch.full((shape[i][0],), 4 + i % 1000) for i in batch.rows]
            check_side(batch.source, ids, 0)
            ids = [torch.full((shape[i][1],), 4 + i % 1000) for i in batch.rows]
            check_side(batch.target, ids, 1)
    assert len(epoch_of(batches, epoch)) == batches.batches_in(epoch)


@settings(max_examples=30)
@given(lengths, st.integers(5, 100), st.data())
def test_resuming_anywhere_gives_the_same_batches(
    shape: list[tuple[int, int]], batch_tokens: int, draw: st.DataObject
) -> None:
    data = data_of_lengths(*zip(*shape, strict=True))
    batches = pair_batches(data, batch_tokens, seed=1)
    whole = list(itertools.islice(batches.iterate(), 2 * batches.batches_in(0) + 5))
    cut = draw.draw(st.integers(0, len(whole) - 2))
    afresh = pair_batches(data, batch_tokens, seed=1)
    resumed = afresh.iterate(whole[cut][1])
    for (batch, state), (expected, expected_state) in zip(resumed, whole[cut + 1 :], strict=False):
        assert same(batch, expected)
        assert state == expected_state


def members(batches: list[PairBatch]) -> set[tuple[int, ...]]:
    return {tuple(sorted(batch.rows.tolist())) for batch in batches}


@pytest.mark.parametrize("kind", [words, sentences])
def test_membership_and_order_change_with_epoch_and_seed(kind: Any) -> None:
    data = data_of_lengths(*kind(2000, np.random.default_rng(0)))
    first, second = (epoch_of(pair_batches(data, 1000, seed=3), epoch) for epoch in (0, 1))
    other = epoch_of(pair_batches(data, 1000, seed=4), 0)
    again = epoch_of(pair_batches(data, 1000, seed=3), 0)
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    for changed in (second, other):
        assert len(members(first) & members(changed)) < len(first) / 4
    widths = [batch.target.values.shape[1] for batch in first]
    rises = np.mean(np.diff(widths) > 0)
    assert 0.25 < rises < 0.75, "batches of one length must not follow each other"


def test_membership_changes_even_without_ties() -> None:
    lengths = np.arange(1, 401)
    batches = pair_batches(data_of_lengths(lengths, lengths), 4000, seed=0)
    first, second = members(epoch_of(batches, 0)), members(epoch_of(batches, 1))
    assert len(first & second) < len(first) / 2


def test_in_order_is_sorted_and_always_alike() -> None:
    data = data_of_lengths(*sentences(500, np.random.default_rng(0)))
    batches = pair_batches(data, 2000, seed=3)
    result = list(batches.in_order())
    other_seed = list(pair_batches(data, 50, seed=9).in_order(2000))
    assert all(same(a, b) for a, b in zip(result, other_seed, strict=True))
    wide = [max(b.source.values.shape[1], b.target.values.shape[1]) for b in result]
    assert wide[0] < wide[len(wide) // 2] < wide[-1]
    assert len(list(batches.in_order(500))) > len(result)


@pytest.mark.parametrize(
    ("kind", "n", "batch_tokens", "most"),
    [(words, 100_000, 4096, 0.02), (sentences, 200_000, 4096, 0.025), (words, 5000, 1024, 0.05)],
)
def test_padding_is_small_on_both_sides(kind: Any, n: int, batch_tokens: int, most: float) -> None:
    source, target = kind(n, np.random.default_rng(1))
    sides = source.astype(np.int32) + 1, target.astype(np.int32) + 2
    plan = _plan_batches(sides, batch_tokens, np.random.default_rng(2))
    for widths in sides:
        padded = 0
        for i in range(len(plan)):
            of_batch = widths[plan.rows(i)]
            padded += int(of_batch.max()) * len(of_batch)
        assert 1 - widths.sum() / padded < most


def test_one_batch_for_data_smaller_than_the_budget() -> None:
    data = data_of_lengths([3, 5, 2, 9], [4, 4, 4, 4])
    batches = pair_batches(data, 4096, seed=0)
    assert [batches.batches_in(epoch) for epoch in range(20)] == [1] * 20


def test_sides_of_very_different_length() -> None:
    data = data_of_lengths([70_000, 1, 70_001, 2], [1, 300, 2, 299])
    batches = pair_batches(data, 1000, seed=0)
    groups = members(epoch_of(batches, 0))
    assert groups == {(0,), (2,), (1, 3)}


def test_a_state_of_other_data_is_refused() -> None:
    batches = pair_batches(data_of_lengths([1, 2], [1, 2]), 100, seed=0)
    with pytest.raises(DataError, match="cannot resume at batch 7 of epoch 2, which has only 1"):
        next(batches.iterate(DataState(2, 7)))


def test_cut_fills_batches_greedily() -> None:
    widths = np.array([2, 2, 2, 3, 3, 50, 1, 1], dtype=np.int32)
    assert _cut(widths, limit=9, first=9).tolist() == [0, 3, 5, 6, 8]
    assert _cut(widths, limit=9, first=4).tolist() == [0, 2, 5, 6, 8]
    assert _cut(widths, limit=9, first=1).tolist() == [0, 1, 4, 5, 6, 8]


def test_to_device_keeps_everything_else() -> None:
    (batch,) = pair_batches(data_of_lengths([1], [2]), 100, seed=0).in_order()
    moved = batch.to("meta")
    assert moved.source.values.device.type == moved.target.real.device.type == "meta"
    assert moved.target_tokens == batch.target_tokens
    assert moved.source.padding == "none"


def test_batches_of_files(tmp_path: Path) -> None:
    from transduce.data.encoded import encode_pairs
    from transduce.data.pairs import FilterConfig
    from transduce.data.ragged_rows import Side

    side = Side(lambda texts: [[int(word) for word in text.split()] for text in texts], 100)
    pairs = [(f"{i} {i}", f"{i}") for i in range(10, 60)]
    data = encode_pairs(pairs, side, side, FilterConfig(), tmp_path / "cache", "1")
    for batch in epoch_of(pair_batches(data, 30, seed=0), 0):
        assert batch.source.padding == "none"
        assert batch.target.padding == "none"
        assert batch.source.values[:, 0].tolist() == (batch.rows + 10).tolist()
        assert batch.target.values[:, 1].tolist() == (batch.rows + 10).tolist()
