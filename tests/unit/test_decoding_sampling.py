"""Sampling: frequencies, seeds, what is kept and what is penalised."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from helpers.toy_search import BOS, EOS, SIZE, ToyModel, decode, toy
from transduce.decoding.strategies import keep_min_p, keep_top_k, keep_top_p, penalise_repeats, topk


def first_tokens(model: ToyModel, n: int, **options: Any) -> Counter[int]:
    """First tokens of n samples; the end of sentence shows as EOS."""
    (result,) = decode(model, [0], max_length=1, method="sample", n_best=n, **options)
    return Counter((*h.tokens, EOS)[0] for h in result)


def expected(
    model: ToyModel,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> dict[int, float]:
    """What the first token's frequencies should be, worked out with lists."""
    scores = model.log_probs(0, (BOS,))
    masses = {token: math.exp(scores[token] / temperature) for token in range(2, SIZE)}
    ranked = sorted(masses, key=lambda token: -masses[token])[: top_k or None]
    total = sum(masses[token] for token in ranked)
    kept, held = [], 0.0
    for token in ranked:
        if held < top_p:
            kept.append(token)
        held += masses[token] / total
    kept = [token for token in kept if masses[token] >= min_p * masses[kept[0]]]
    total = sum(masses[token] for token in kept)
    return {token: masses[token] / total for token in kept}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"top_k": 2},
        {"top_p": 0.7},
        {"temperature": 2.0, "top_k": 3, "top_p": 0.8},
        {"min_p": 0.5},
    ],
)
def test_frequencies_are_those_of_the_distribution(options: dict[str, Any]) -> None:
    model, n = toy(11), 8_000
    counts = first_tokens(model, n, **options)
    known = expected(model, **options)
    assert set(counts) == set(known)
    for token, share in known.items():
        assert abs(counts[token] / n - share) < 5 * math.sqrt(share * (1 - share) / n) + 1e-12


def test_streams_and_seeds_are_independent() -> None:
    """Pairs of first tokens under two seeds are as frequent over streams as chance has it."""
    model, n = toy(11, n=1), 4000
    result = decode(model, [0] * n, max_length=1, method="sample", n_best=1)
    later = decode(model, [0] * n, max_length=1, method="sample", n_best=1, seed=1)
    known = expected(model)
    pairs = Counter(
        ((*a.tokens, EOS)[0], (*b.tokens, EOS)[0]) for (a,), (b,) in zip(result, later, strict=True)
    )
    for first, second in itertools.product(known, known):
        share = known[first] * known[second]
        assert abs(pairs[first, second] / n - share) < 5 * math.sqrt(share / n)


def test_sampling_repeats_itself_and_seeds_streams_and_samples_differ() -> None:
    model = toy(12, spread=0.1)
    options = {"method": "sample", "max_length": 12, "min_length": 12}

    def words(**more: Any) -> list[list[int]]:
        return [h.tokens for result in decode(model, [0], **options, **more) for h in result]

    assert words() == words()
    assert words() != words(seed=1)
    assert words() == words(streams=[0])
    assert words() != words(streams=[1])
    three = words(n_best=3)
    assert words()[0] in three and len({tuple(w) for w in three}) == 3


def test_temperature_changes_the_draw_and_not_the_log_prob() -> None:
    model = toy(13)
    (result,) = decode(model, [0], max_length=5, method="sample", n_best=20, temperature=4.0)
    for h in result:
        ids = (BOS, *h.tokens, EOS)
        steps = (model.log_probs(0, ids[:t])[ids[t]] for t in range(1, len(ids)))
        assert h.log_prob == pytest.approx(sum(steps))
    assert len(result) == 20
    (cold,) = decode(model, [0], max_length=5, method="sample", temperature=1e-320)
    (greedy,) = decode(model, [0], max_length=5, beam_size=1)
    assert cold[0].tokens == greedy[0].tokens  # the limit of all temperatures
    assert [h.score for h in result] == sorted((h.score for h in result), reverse=True)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 1500),
    count=st.integers(1, 9),
    levels=st.sampled_from([1, 2, 5, 1000]),
)
def test_largest_gives_equals_to_the_lower_index(
    seed: int, width: int, count: int, levels: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(levels, (3, width), generator=generator).double()
    values[0, : width // 2] = -math.inf
    count = min(count, width)
    top, index = topk(values, count)
    for row, tops, places in zip(values.tolist(), top.tolist(), index.tolist(), strict=True):
        ranked = sorted(range(width), key=lambda i: -row[i])[:count]  # stable
        assert tops == [row[i] for i in ranked]
        real = [i for i in ranked if row[i] > -math.inf]
        assert places[: len(real)] == real
        assert len(set(places)) == count


def test_top_k_and_top_p_keep_what_they_say() -> None:
    probs = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)

    def kept(log_probs: Tensor) -> list[list[int]]:
        return [row.nonzero().flatten().tolist() for row in log_probs > -math.inf]

    assert kept(keep_top_k(probs.log(), 2)) == [[1, 3], [0, 1]]
    assert kept(keep_top_k(probs.log(), 99)) == [[0, 1, 2, 3]] * 2
    assert kept(keep_top_p(probs.log(), 0.6)) == [[1, 3], [0, 1, 2]]
    assert kept(keep_top_p(probs.log(), 0.695)) == [[1, 3], [0, 1, 2]]
    assert kept(keep_top_p(probs.log(), 1e-9)) == [[1], [0]]
    values = keep_top_p(probs.log(), 0.6)
    assert values[0, 1] == probs[0, 1].log()


def test_min_p_and_the_penalty_of_repeats() -> None:
    probs = torch.tensor([[0.1, 0.4, 0.2, 0.3], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    kept = (keep_min_p(probs.log(), 0.6) > -math.inf).tolist()
    assert kept == [[False, True, False, True], [True] * 4]
    scores = probs.log()[:, None]  # (l, w, v)
    tokens = torch.tensor([[[1, 1, 3]], [[0, 0, 0]]])
    result = penalise_repeats(scores, tokens, 2.0).exp()[:, 0]
    assert result[0].tolist() == pytest.approx([0.1, 0.16, 0.2, 0.09])
    assert result[1].tolist() == pytest.approx([0.0625, 0.25, 0.25, 0.25])


def test_a_penalty_makes_repeats_rarer() -> None:
    model = toy(11, spread=0.3)

    def repeats(penalty: float) -> int:
        options = {"method": "sample", "n_best": 200, "repetition_penalty": penalty}
        (result,) = decode(model, [0], 6, min_length=6, **options)
        return sum(len(h.tokens) - len(set(h.tokens)) for h in result)

    assert repeats(1.0) > repeats(1.5) > repeats(20.0)


def test_top_p_of_a_large_vocabulary_is_that_of_a_full_sort() -> None:
    peaked = torch.randn(2, 3, 2000, dtype=torch.float64) * 8
    flat = torch.randn(2, 3, 2000, dtype=torch.float64) / 8
    for scores in (peaked, flat):  # the likeliest few suffice, or do not
        row = keep_top_p(scores, 0.9)[1, 2]
        ranked = scores[1, 2].softmax(0).sort(descending=True)
        n = int((ranked.values.cumsum(0) < 0.9).sum()) + 1
        assert (row > -math.inf).nonzero().flatten().tolist() == sorted(ranked.indices[:n].tolist())
