"""Differences between systems, by paired bootstrap."""

import math
import random

import pytest

from helpers.systems import corrupted, sentences, single
from transduce.errors import DataError, SettingError
from transduce.metrics import METRICS, bootstrap_interval, make_metric, paired_bootstrap
from transduce.metrics.metric import few_items, few_tokens
from transduce.tasks.evaluation import Evaluation


@pytest.mark.parametrize("name", METRICS)
def test_identical_systems_do_not_differ(name):
    references = sentences(40)
    lines = corrupted(references, 0.3)
    result = paired_bootstrap(make_metric(name, "en"), lines, lines, single(references), 200)
    assert (result.difference, result.low, result.high, result.p_value) == (0, 0, 0, 1)
    assert result.score_a == result.score_b
    assert all(type(value) is float for value in vars(result).values())  # for JSON


@pytest.mark.parametrize("name", METRICS)
def test_a_clearly_better_system_is_significant(name):
    references = sentences(120)
    worse, better = corrupted(references, 0.6), corrupted(references, 0.1, seed=2)
    metric = make_metric(name, "en")
    result = paired_bootstrap(metric, worse, better, single(references), 300)
    sign = 1 if metric.higher_is_better else -1
    assert result.p_value < 0.05
    assert sign * result.difference > 0
    assert result.difference == result.score_b - result.score_a
    assert result.low < result.difference < result.high
    assert sign * (result.low if sign > 0 else result.high) > 0


def test_equally_good_systems_are_not_significant():
    references = sentences(200)
    a, b = corrupted(references, 0.3, seed=1), corrupted(references, 0.3, seed=2)
    result = paired_bootstrap(make_metric("accuracy"), a, b, single(references))
    assert result.p_value > 0.05
    assert result.low < 0 < result.high


def test_exchanging_the_systems_mirrors_the_result():
    references = single(sentences(60))
    a, b = corrupted(sentences(60), 0.4, seed=1), corrupted(sentences(60), 0.3, seed=2)
    metric = make_metric("per")
    there, back = (paired_bootstrap(metric, *pair, references) for pair in ((a, b), (b, a)))
    assert back.difference == -there.difference
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low))
    assert back.p_value == there.p_value


def test_the_interval_is_as_wide_as_theory_says():
    # a is right on 100 items of 400, b on those and on 100 more: the difference of accuracies is
    # a mean of 400 values, 100 of them 1, so its standard error is sqrt(.25 * .75 / 400)
    references = single(["A"] * 400)
    a, b = ["A"] * 100 + ["B"] * 300, ["A"] * 200 + ["B"] * 200
    result = paired_bootstrap(make_metric("accuracy"), a, b, references, samples=4000)
    half = 196 * math.sqrt(0.25 * 0.75 / 400)
    assert result.difference == 25
    assert result.low == pytest.approx(25 - half, abs=0.5)
    assert result.high == pytest.approx(25 + half, abs=0.5)


def test_the_interval_of_one_system_is_as_wide_as_theory_says():
    references, right = single(["A"] * 400), ["A"] * 100 + ["B"] * 300
    low, high = bootstrap_interval(make_metric("accuracy"), right, references, samples=4000)
    half = 196 * math.sqrt(0.25 * 0.75 / 400)
    assert low == pytest.approx(25 - half, abs=0.5)
    assert high == pytest.approx(25 + half, abs=0.5)


@pytest.mark.parametrize("samples", [40, 79, 80, 999, 1000])
def test_p_values_never_contradict_their_interval(samples):
    """As those of another distribution do, most of all with a handful of items."""
    accuracy, verdicts = make_metric("accuracy"), set()
    for seed in range(60):
        rng = random.Random(seed)
        n = rng.randint(2, 40)
        gain = rng.random()
        a = ["A" if rng.random() < 0.4 else "B" for _ in range(n)]
        b = ["A" if rng.random() < gain else one for one in a]
        result = paired_bootstrap(accuracy, a, b, single(["A"] * n), samples)
        significant = result.p_value < 0.05
        assert significant == (not result.low <= 0 <= result.high)
        verdicts.add(significant)
    assert verdicts == {True, False}


def test_the_p_value_is_two_sided():
    # Each is right where the other is wrong, b on 60 items and a on 39: a mean of 99 values,
    # each 1 or -1, of 21 / 99.
    a, b = ["A"] * 39 + ["B"] * 60, ["B"] * 39 + ["A"] * 60
    result = paired_bootstrap(make_metric("accuracy"), a, b, single(["A"] * 99), samples=4000)
    mean = 21 / 99
    error = math.sqrt((1 - mean**2) / 99)
    assert result.p_value == pytest.approx(math.erfc(mean / error / math.sqrt(2)), abs=0.01)


def test_a_seed_is_a_result():
    references = single(sentences(50))
    a, b = corrupted(sentences(50), 0.4, seed=1), corrupted(sentences(50), 0.3, seed=2)
    metric = make_metric("per")
    first = paired_bootstrap(metric, a, b, references, seed=7)
    assert paired_bootstrap(metric, a, b, references, seed=7) == first
    assert paired_bootstrap(metric, a, b, references, seed=8) != first


def test_bootstrap_refusals():
    accuracy = make_metric("accuracy")
    with pytest.raises(SettingError, match="samples must be at least 1, not 0"):
        paired_bootstrap(accuracy, ["a"], ["a"], [["a"]], samples=0)
    with pytest.raises(SettingError, match="seed must not be negative, but is -1"):
        paired_bootstrap(accuracy, ["a"], ["a"], [["a"]], seed=-1)
    with pytest.raises(DataError, match="2 hypotheses"):
        paired_bootstrap(accuracy, ["a"], ["a", "b"], [["a"]])
    with pytest.raises(DataError, match="nothing to measure"):
        paired_bootstrap(accuracy, [], [], [])


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (0, ""),
        (1, "only 1 pair, too few for a 95 % interval; with 400"),
        (2, "only 2 pairs: the 95 % interval of a score of 50 % is ± 50 points"),
        (10, "± 31 points; with 400 it is ± 5"),
        (99, "± 10 points"),
        (100, ""),
    ],
)
def test_few_items_are_said(count: int, message: str) -> None:
    result = few_items(count, "pairs")
    assert message in result and bool(message) == bool(result)


def test_few_tokens_are_said() -> None:
    assert "only 500 tokens: the 95 % interval of the loss is about ± 0.22" in few_tokens(500)
    assert "1,999 tokens" in few_tokens(1999) and not few_tokens(2000) and not few_tokens(0)


def test_one_item_has_no_interval() -> None:
    one = Evaluation({"chrf": 50.0}, ["a"], ["a b"], [["a c"]])
    assert one.intervals() == {} and one.against(["a c"]) == {}
    assert one.few.startswith("only 1 item, too few")
    two = Evaluation({"chrf": 50.0}, ["a", "b"], ["a b", "b"], [["a c"], ["b"]])
    assert set(two.intervals()) == set(two.against(["a c", "b"])) == {"chrf"}
    assert Evaluation({"perplexity": 5.0}, ["a"]).few == ""
