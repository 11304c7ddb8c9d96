"""An answer or an error for each input: what is wrong with one costs the others nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import transduce
from transduce import CancelledError, DecodingOptions, InputError, Run, SettingError
from transduce.decoding.options import check_work
from transduce.tasks.labels import LabelPrediction
from transduce.tasks.predictors import attempt

RUNS = Path(__file__).parents[1] / "runs" / "0.1.0"


@pytest.fixture(scope="module")
def run(on_each_engine: Run) -> Run:
    return on_each_engine


def test_each_text_has_its_own_answer_or_error(run: Run) -> None:
    options: list[Any] = [
        None,
        {"n_best": 6},
        {"beam_size": 0},
        {"beam": 3},
        DecodingOptions(prefix="zz"),
        {"shortlist": True},
        {"method": "sample", "seed": 3},
    ]
    result = run.attempt(["abc"] * len(options), options, first=4)
    assert [isinstance(one, SettingError) for one in result[2:5]] == [True] * 3
    assert "beam_size" in str(result[2]) and "beam" in str(result[3])
    assert str(result[4]).startswith("prefix: 'zz'")  # which text it is, its place says
    assert "transduce shortlist" in str(result[5])
    plain = run.predictor.options
    assert plain is not None
    for i in (0, 1, 6):
        own = plain.with_settings(options[i] or {})
        assert result[i] == run.translate_batch(["abc"], own, 4 + i)[0]
    with pytest.raises(SettingError, match="line 7: "):
        run.translate_batch(["abc"] * 3, [plain, plain, options[4]], 4)


def test_one_setting_for_all(run: Run) -> None:
    texts = ["abc", "", "de"]
    for options in (None, {"beam_size": 2}, DecodingOptions(beam_size=2)):
        own = DecodingOptions(beam_size=2) if options else None
        assert run.attempt(texts, options) == run.translate_batch(texts, own)
    assert run.attempt([]) == []


def test_a_task_that_decodes_nothing() -> None:
    run = transduce.load(RUNS / "classification", "cpu")
    right = list(run.predict(["a good dog", "a hat", "the cat"], kind=LabelPrediction))
    assert run.attempt(["a good dog", "a hat", "the cat"]) == right
    first, second, third = run.attempt(
        ["a good dog", "a hat", "the cat"], [None, {"beam_size": 2}, None], 0, lambda i: i == 2
    )
    assert isinstance(first, LabelPrediction) and isinstance(third, CancelledError)
    assert first.text == right[0].text  # alone now: probabilities may differ in the last bits
    assert first.probabilities == pytest.approx(right[0].probabilities, abs=1e-6)
    assert isinstance(second, SettingError) and "does not decode" in str(second)


class Reader:
    """Answers with the number of each input; some it cannot read."""

    inputs = ("image",)
    options = DecodingOptions(beam_size=2)
    model: Any = None
    evaluate: Any = None
    facts: Any = None

    def predict(
        self, inputs: Sequence[tuple[str, ...]], options: Any = None, first: int = 0
    ) -> list[Any]:
        for i, (name,) in enumerate(inputs):
            if name.startswith("bad"):
                raise InputError(first + i, "no image")
        if options.prefix:
            raise SettingError("prefix: no")
        return [(first + i, options.beam_size) for i in range(len(inputs))]


def test_inputs_that_cannot_be_read() -> None:
    inputs = [(name,) for name in ("bad", "a", "b", "bad", "c", "d", "e")]
    options = [None, None, {}, {"beam_size": 3}, {"beam_size": 3}, {"prefix": "x"}, {"prefix": 3}]
    result = attempt(Reader(), inputs, options, first=2)  # type: ignore[arg-type]
    assert [result[1], result[2], result[4]] == [(3, 2), (4, 2), (6, 3)]
    assert [result[i].number for i in (0, 3)] == [2, 5]  # type: ignore[union-attr]
    assert [isinstance(one, SettingError) for one in result[5:]] == [True, True]


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        ({"beam_size": 10_000}, "TRANSDUCE_LIMIT_BEAM"),
        ({"method": "sample", "n_best": 1000}, "TRANSDUCE_LIMIT_SAMPLES"),
        (
            {"method": "sample", "minimum_risk": "chrf", "candidates": 9999},
            "TRANSDUCE_LIMIT_SAMPLES",
        ),
        ({"constraints": [["a"] * 200, "b"], "avoid": ["c"] * 60}, "TRANSDUCE_LIMIT_PHRASES"),
        ({"avoid": ["ab" * 600]}, "TRANSDUCE_LIMIT_PHRASE"),
        ({"max_length_extra": 1_000_000}, "TRANSDUCE_LIMIT_OUTPUT"),
        ({"prefix": "a" * 40_000}, "TRANSDUCE_LIMIT_OUTPUT"),
    ],
)
def test_too_much_work_is_refused_unless_allowed(
    run: Run, settings: dict[str, Any], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = DecodingOptions().with_settings(settings)
    remedy = rf"the limit is \d+; lower it, or set the variable {variable}$"
    for act in (
        lambda: run.translator.check(options),
        lambda: run.translate("ab", options),
        lambda: run.translate_batch(["ab"], [options]),
    ):
        with pytest.raises(SettingError, match=remedy):
            act()
    (answer,) = run.attempt(["ab"], settings)
    assert isinstance(answer, SettingError)
    monkeypatch.setenv(variable, "2000000")
    check_work(options, options.max_length_for(9), "max_length_extra")
    monkeypatch.setenv(variable, "many")
    with pytest.raises(SettingError, match=f"^{variable}='many' .* must be a whole number"):
        run.translator.check(options)


def test_defaults_are_within_the_limits() -> None:
    check_work(DecodingOptions(), 276, "max_tokens")
    with pytest.raises(
        SettingError, match=r"^max_tokens: an output of 50000 .* TRANSDUCE_LIMIT_OUTPUT"
    ):
        check_work(DecodingOptions(max_tokens=50_000), 50_000, "max_tokens")
