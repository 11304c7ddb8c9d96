"""Beam search against slow and obvious ones, on toy models whose every logit is a table's."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.toy_search import BOS, EOS, SIZE, TokenIds, ToyModel, decode, greedy, toy
from transduce.decoding.hypotheses import length_penalty
from transduce.decoding.options import DecodingOptions


def penalty_of(name: str, alpha: float) -> Callable[[int], float]:
    """Written anew, so as not to trust ours."""
    return {
        "none": lambda length: 1.0,
        "mean": lambda length: float(length),
        "gnmt": lambda length: (5 + length) ** alpha / 6**alpha,
    }[name]


def brute_force(
    model: ToyModel, sentence: int, max_length: int, penalty: Callable[[int], float]
) -> list[tuple[float, list[int]]]:
    """Every finished hypothesis with its score, best first."""
    result = []
    for length in range(max_length + 1):
        for words in itertools.product(range(3, SIZE), repeat=length):
            past: TokenIds = (BOS,)
            total = 0.0
            for token in (*words, EOS):
                total += model.log_probs(sentence, past)[token]
                past = (*past, token)
            result.append((total / penalty(length + 1), list(words)))
    return sorted(result, key=lambda pair: -pair[0])


def plain_beam(
    model: ToyModel,
    sentence: int,
    max_length: int,
    beam_size: int,
    penalty: Callable[[int], float],
    stop: str,
) -> list[tuple[float, list[int]]]:
    """One sentence with lists; never stops early but for "first"'s count."""
    active: list[tuple[float, TokenIds]] = [(0.0, (BOS,))]
    finished: list[tuple[float, list[int]]] = []
    for length in range(max_length + 1):
        allowed = [EOS] if length == max_length else [2, 3, 4, 5]
        ways = [
            (total + model.log_probs(sentence, past)[token], (*past, token))
            for total, past in active
            for token in allowed
        ]
        ways.sort(key=lambda way: -way[0])
        for total, past in ways[:beam_size]:
            if past[-1] == EOS:
                finished.append((total / penalty(length + 1), list(past[1:-1])))
        active = [way for way in ways if way[1][-1] != EOS][:beam_size]
        if stop == "first" and len(finished) >= beam_size:
            break
    return sorted(finished, key=lambda pair: -pair[0])


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["none", "mean", "gnmt"]),
    alpha=st.sampled_from([0.0, 0.6, 1.0, 2.5]),
    n_best=st.integers(1, 50),
    max_length=st.integers(0, 3),
    spread=st.sampled_from([0.3, 1.5, 4.0]),
)
def test_a_beam_wide_enough_finds_what_brute_force_finds(
    seed: int, name: str, alpha: float, n_best: int, max_length: int, spread: float
) -> None:
    model = toy(seed, spread=spread)
    (result,) = decode(
        model,
        [0],
        max_length,
        beam_size=200,
        n_best=n_best,
        length_penalty=name,
        alpha=alpha,
        stop="exact",
    )
    known = brute_force(model, 0, max_length, penalty_of(name, alpha))[:n_best]
    assert [h.score for h in result] == pytest.approx([score for score, _ in known])
    assert [h.tokens for h in result] == [tokens for _, tokens in known]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["none", "mean", "gnmt"]),
    beam_size=st.integers(1, 5),
    max_length=st.integers(0, 9),
    data=st.data(),
)
def test_exact_stopping_loses_nothing_that_the_beam_would_find(
    seed: int, name: str, beam_size: int, max_length: int, data: st.DataObject
) -> None:
    model = toy(seed)
    n_best = data.draw(st.integers(1, beam_size))
    result = decode(
        model,
        [0, 1, 2],
        max_length,
        beam_size=beam_size,
        n_best=n_best,
        length_penalty=name,
        stop="exact",
    )
    for i in range(3):
        known = plain_beam(model, i, max_length, beam_size, penalty_of(name, 0.6), "exact")
        assert [h.tokens for h in result[i]] == [tokens for _, tokens in known[:n_best]]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["none", "mean", "gnmt"]),
    beam_size=st.integers(1, 5),
    max_length=st.integers(0, 9),
)
def test_first_stopping_is_done_when_as_many_as_the_beam_have_finished(
    seed: int, name: str, beam_size: int, max_length: int
) -> None:
    model = toy(seed)
    (result,) = decode(
        model, [0], max_length, beam_size=beam_size, n_best=beam_size, length_penalty=name
    )
    known = plain_beam(model, 0, max_length, beam_size, penalty_of(name, 0.6), "first")
    assert [h.tokens for h in result] == [tokens for _, tokens in known[:beam_size]]


def test_the_two_stopping_rules_differ() -> None:
    for seed in range(200):
        options = {"length_penalty": "mean", "beam_size": 2, "max_length": 9}
        first = decode(toy(seed), [0], stop="first", **options)
        exact = decode(toy(seed), [0], stop="exact", **options)
        assert exact[0][0].score >= first[0][0].score
        if exact[0][0].score > first[0][0].score:
            return
    pytest.fail("no difference found")


@pytest.mark.parametrize("stop", ["first", "exact"])
def test_a_live_hypothesis_may_win_by_its_last_and_longest_length(stop: str) -> None:
    """Its score improves up to the length that the end of sentence completes."""
    probs = torch.zeros(1, 2, SIZE, SIZE, dtype=torch.float64)
    probs[0, 0, :, [EOS, 3]] = torch.tensor([0.55, 0.45], dtype=torch.float64)
    probs[0, 1, :, EOS] = 1.0
    model = ToyModel(probs.log())
    ((best,),) = decode(model, [0], 1, beam_size=2, stop=stop, length_penalty="mean")
    assert best.tokens == [3]
    assert best.score == pytest.approx(math.log(0.45) / 2)


def test_exact_stopping_stops_early() -> None:
    model = toy()
    model.table[:, :, :, EOS] += 10.0
    decode(model, [0], max_length=500, stop="exact", length_penalty="none")
    assert len(model.rows_seen) < 5


@settings(max_examples=60)
@given(
    table=st.lists(st.integers(-2, 2), min_size=4 * SIZE * SIZE, max_size=4 * SIZE * SIZE),
    max_length=st.integers(0, 8),
)
def test_beam_of_one_is_greedy_even_among_equals(table: list[int], max_length: int) -> None:
    model = ToyModel(torch.tensor(table, dtype=torch.float64).view(1, 4, SIZE, SIZE))
    ((best,),) = decode(model, [0], max_length, beam_size=1)
    assert best.tokens == greedy(model, 0, max_length)
    ((drawn,),) = decode(model, [0], max_length, method="sample", top_k=1)
    assert drawn == best


def test_n_best_are_sorted_distinct_and_scored_with_the_end_of_sentence() -> None:
    model = toy(7)
    for result in decode(model, [0, 1, 2], max_length=6, beam_size=8, n_best=8):
        scores = [h.score for h in result]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(h.tokens) for h in result}) == 8
        for h in result:
            assert h.finished
            assert h.score == pytest.approx(h.log_prob / ((6 + len(h.tokens)) / 6) ** 0.6)


def test_the_beam_grows_from_one_row_and_repeats_nothing() -> None:
    model = toy(2)
    decode(model, [0, 1], max_length=5, beam_size=3, stop="exact", min_length=5)
    assert model.rows_seen[:2] == [2, 6]
    second = model.pasts[1]
    assert len(set(second[:3])) == len(set(second[3:])) == 3


def test_a_beam_goes_on_beside_what_has_ended() -> None:
    """Ended hypotheses compete with finished ones; brute force over all that can come out."""
    model = toy(7)

    def ended(sentence: int, ids: list[int]) -> bool:
        return ids[-1] == 4

    (result,) = decode(
        model, [0], 3, beam_size=200, n_best=50, length_penalty="mean", stop="exact", ended=ended
    )
    known = []
    for total, words in brute_force(model, 0, 3, lambda length: 1.0):
        if 4 not in words:
            known.append((total / (len(words) + 1), words))
    for length in range(3):
        for words in itertools.product((3, 5), repeat=length):
            ids = (BOS, *words, 4)
            steps = (model.log_probs(0, ids[:t])[ids[t]] for t in range(1, len(ids)))
            known.append((sum(steps) / (length + 1), [*words, 4]))
    known.sort(key=lambda pair: -pair[0])
    assert [h.tokens for h in result] == [tokens for _, tokens in known[:50]]
    assert [h.score for h in result] == pytest.approx([score for score, _ in known[:50]])


def test_penalties_follow_their_formulas() -> None:
    def penalty(**options: Any) -> Callable[[int], float]:
        return functools.partial(length_penalty, DecodingOptions(**options))

    assert penalty(length_penalty="none")(7) == 1.0
    assert penalty(length_penalty="mean")(7) == 7.0
    assert penalty()(1) == 1.0
    assert penalty(alpha=0.6)(7) == pytest.approx(2**0.6)
    assert penalty(alpha=0.0)(50) == 1.0
