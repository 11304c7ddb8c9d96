"""What every search keeps to, beam or samples: lengths, ends, what is forbidden, its options."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.toy_search import BOS, EOS, PAD, ToyModel, ToyState, decode, greedy, toy
from transduce.decoding.options import DecodingOptions
from transduce.decoding.search import SearchRequest, search, search_steps
from transduce.errors import SettingError, TransduceError
from transduce.sequence import Padded
from transduce.settings.sections import parse


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    limits=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    options=st.sampled_from(
        [
            {"beam_size": 1},
            {"beam_size": 3, "n_best": 3},
            {"beam_size": 4, "n_best": 2, "stop": "exact", "length_penalty": "mean"},
            {"method": "sample", "n_best": 3},
            {"method": "sample", "top_p": 0.8, "temperature": 1.3, "seed": 5},
        ]
    ),
)
def test_a_batch_is_what_its_sentences_are_alone(
    seed: int, limits: list[int], options: dict[str, Any]
) -> None:
    model = toy(seed, n=len(limits))
    streams = [10 + i for i in range(len(limits))]
    together = decode(model, range(len(limits)), limits, streams, **options)
    for i, limit in enumerate(limits):
        assert decode(model, [i], [limit], [streams[i]], **options) == [together[i]]


def test_finished_sentences_leave_the_batch() -> None:
    model = toy(4)
    decode(model, [0, 1, 2, 0], max_length=[1, 6, 3, 0], beam_size=2, min_length=99)
    assert model.rows_seen == [4, 6, 4, 4, 2, 2, 2]


def test_select_is_skipped_where_nothing_moves() -> None:
    model, state = toy(4), ToyState([0, 1])
    decode(model, [0, 1], max_length=[2, 5], beam_size=1, min_length=9, state=state)
    assert state.selections == 1  # when the first sentence left
    state = ToyState([0, 1])
    decode(model, [0, 1], max_length=5, min_length=9, method="sample", n_best=3, state=state)
    assert state.selections == 1  # when one row became three


def test_forbidden_ids_are_never_emitted_yet_take_their_share() -> None:
    model = toy(3)
    model.table[..., [BOS, PAD]] += 5.0
    for options in ({"beam_size": 4, "n_best": 4}, {"method": "sample", "n_best": 4}):
        for result in decode(model, [0, 1, 2], max_length=6, **options):
            for h in result:
                assert not {BOS, PAD, EOS} & set(h.tokens)
                steps = len(h.tokens) + 1
                assert h.log_prob < -2.0 * steps  # what is forbidden took most of each step


def test_log_prob_is_over_the_whole_vocabulary() -> None:
    model = toy(3)
    for i, result in enumerate(decode(model, [0, 1, 2], max_length=6, beam_size=4, n_best=4)):
        for h in result:
            ids = (BOS, *h.tokens, EOS)
            steps = (model.log_probs(i, ids[:t])[ids[t]] for t in range(1, len(ids)))
            assert h.log_prob == pytest.approx(sum(steps))


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_lengths_stay_within_their_bounds(method: str) -> None:
    model = toy(5)
    result = decode(model, [0, 1, 2], [2, 4, 7], method=method, n_best=5, min_length=4)
    lengths = [[len(h.tokens) for h in hypotheses] for hypotheses in result]
    assert set(lengths[0]) == {2}  # the maximum goes first
    assert set(lengths[1]) == {4}
    assert min(lengths[2]) >= 4 and max(lengths[2]) <= 7
    assert all(h.finished for hypotheses in result for h in hypotheses)


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_an_end_that_is_free_counts_nothing_whatever_else_is_asked(method: str) -> None:
    shared: dict[str, Any] = {"free_end": True, "method": method, "beam_size": 1}
    at_limit = 0
    for seed in range(20):
        (plain,) = decode(toy(seed), [0], 3, **shared)
        (other,) = decode(toy(seed), [0], 3, repetition_penalty=1 + 1e-9, **shared)
        assert [h.tokens for h in other] == [h.tokens for h in plain]
        logs = [[h.log_prob for h in result] for result in (other, plain)]
        assert logs[0] == pytest.approx(logs[1], abs=1e-5)
        at_limit += len(plain[0].tokens) == 3
    assert at_limit


def test_max_length_zero_is_the_empty_sentence() -> None:
    model = toy()
    ((empty,),) = decode(model, [0], max_length=0)
    assert empty.tokens == [] and empty.finished
    assert empty.log_prob == pytest.approx(model.log_probs(0, (BOS,))[EOS])


def test_no_sentences() -> None:
    assert decode(toy(), [], []) == []
    assert decode(toy(), [], [], method="sample") == []


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_a_forced_prefix_is_gone_on_from(method: str) -> None:
    model = toy(6)
    prefix = (BOS, 4, 3)
    options = {"method": method, "top_k": 1 if method == "sample" else 0, "beam_size": 1}
    ((best,),) = decode(model, [1], max_length=5, prefix=prefix, **options)
    assert best.tokens == greedy(model, 1, 5, prefix)
    assert all(past[:3] == prefix for pasts in model.pasts for past in pasts)
    ids = (*prefix, *best.tokens, EOS)
    assert best.log_prob == pytest.approx(
        sum(model.log_probs(1, ids[:t])[ids[t]] for t in range(3, len(ids)))
    )


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_only_where_nothing_can_finish_is_the_unfinished_returned(method: str) -> None:
    model = toy(8)
    model.table[0, :, :, EOS] = -math.inf
    never, normal = decode(model, [0, 1], max_length=3, method=method, n_best=2)
    assert never and all(not h.finished and len(h.tokens) == 3 for h in never)
    assert all(math.isfinite(h.log_prob) and math.isfinite(h.score) for h in never)
    assert [h.score for h in never] == sorted((h.score for h in never), reverse=True)
    assert normal and all(h.finished for h in normal)


def test_dead_rows_are_not_returned() -> None:
    model = toy()
    model.table[..., [EOS, 4, 5]] = -math.inf
    ((only,),) = decode(model, [0], max_length=2, n_best=5)
    assert only.tokens == [3, 3] and not only.finished
    model = toy()
    model.table[..., [4, 5]] = -math.inf
    (result,) = decode(model, [0], max_length=2, n_best=5)
    assert sorted(h.tokens for h in result) == [[], [3], [3, 3]]


@pytest.mark.parametrize("method", ["beam", "sample"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_an_error(method: str, value: float) -> None:
    model = toy()
    model.table[1, 1, :, 4] = value
    with pytest.raises(TransduceError, match=r"are NaN after 1 tokens.*float32"):
        decode(model, [0, 1], method=method, n_best=2, min_length=2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_narrow_logits_are_scored_in_float32(dtype: torch.dtype) -> None:
    model = toy(1)
    wide = ToyModel(model.table.to(dtype).float())
    model.table = model.table.to(dtype)
    assert decode(model, [0, 1], max_length=6) == decode(wide, [0, 1], max_length=6)


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_a_hypothesis_ends_where_the_caller_says(method: str) -> None:
    model = toy(6)
    options = {"method": method, "top_k": 1 if method == "sample" else 0, "beam_size": 1}
    free = [greedy(model, i, 9) for i in range(3)]

    def ended(sentence: int, ids: list[int]) -> bool:
        return len(ids) == 2 + sentence

    result = decode(model, [0, 1, 2], 9, ended=ended, **options)
    for i, (best,) in enumerate(result):
        assert best.tokens == free[i][: 2 + i]
        assert best.finished == (len(free[i]) < 2 + i)
        ids = (BOS, *best.tokens, *([EOS] if best.finished else []))
        steps = (model.log_probs(i, ids[:t])[ids[t]] for t in range(1, len(ids)))
        assert best.log_prob == pytest.approx(sum(steps))
        assert best.score == pytest.approx(best.log_prob / ((5 + len(ids) - 1) / 6) ** 0.6)


def test_steps_show_what_the_search_finds() -> None:
    model = toy(3)
    options = DecodingOptions(beam_size=2)
    prefix = Padded.unpadded(torch.full((2, 1), BOS))
    arguments = prefix, torch.tensor([2, 5]), EOS, [BOS, PAD], options
    shots = list(search_steps(SearchRequest(model.step, ToyState([0, 1]), *arguments)))
    assert [shot.active.length for shot in shots] == list(range(len(shots)))
    assert shots[0].best == [[], []] and shots[-1].active.sentences == []
    assert shots[-1].best == search(SearchRequest(model.step, ToyState([0, 1]), *arguments))
    assert len(shots) == len(model.rows_seen) // 2 + 1


def test_no_row_of_tokens_comes_twice() -> None:
    model = toy(3, spread=0.2)
    for method in ("beam", "sample"):
        for n in (1, 2, 3):
            options = {"method": method, "no_repeat_ngram": n, "min_length": 3, "n_best": 4}
            for result in decode(model, [0, 1, 2], 3 if n == 1 else 8, **options):
                for h in result:
                    rows = [tuple(h.tokens[i : i + n]) for i in range(len(h.tokens) - n + 1)]
                    assert len(rows) == len(set(rows))
    (free,) = decode(model, [0], 8, min_length=8, beam_size=1)
    assert len(set(zip(free[0].tokens, free[0].tokens[1:], strict=False))) < 7


def test_options_know_the_lengths() -> None:
    options = DecodingOptions(max_length_ratio=1.1, max_length_extra=3)
    lengths = [1, 10, 123456]
    assert [options.max_length_for(x) for x in lengths] == [int(1.1 * x) + 3 for x in lengths]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"beam_size": 0}, "beam_size"),
        ({"n_best": 6}, "n_best = 6 needs a beam_size of at least 6, not 5"),
        ({"temperature": 0.0}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"alpha": -0.1}, "alpha"),
        ({"min_p": 1.1}, "min_p"),
        ({"repetition_penalty": 0.5}, "repetition_penalty"),
        ({"stop_strings": [""]}, "stop_strings"),
        ({"max_length_ratio": math.inf}, "max_length_ratio"),
        ({"stop": "never"}, "stop"),
        ({"beams": 4}, "did you mean|is not a setting"),
    ],
)
def test_options_that_cannot_be(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        parse(DecodingOptions, wrong)


def test_more_samples_than_beams_are_fine() -> None:
    assert DecodingOptions(method="sample", n_best=50).width == 50
    with pytest.raises(SettingError, match="beam_size"):
        DecodingOptions(n_best=50)
