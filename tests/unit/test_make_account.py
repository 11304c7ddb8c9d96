"""Accounts of `transduce make`: failures that are named, forms of a model, learning curves."""

from pathlib import Path

import pytest

from transduce.making import plan as plans
from transduce.making.account import Account, _more, words
from transduce.making.build import Maker
from transduce.making.data import Plan, PreparedData, Request, chance, gain_of, has_learnt
from transduce.making.plan import DataFacts, is_portable, preferred
from transduce.tasks.evaluation import Evaluation

FACTS = {
    "test": 20,
    "steps": 38,
    "epochs": 1,
    "synthetic": 0,
    "dropped_count": 0,
    "read": 100,
    "more_minutes": 40,
    "forms": {"engine": "", "page": "it has no tables"},
    "dropped": {},
    "columns": ["a.tsv: column 1 -> column 2"],
    "swapped": 3,
    "order": "",
    "tried": "",
    "train": 60,
    "valid": 20,
    "speed": 100,
    "candidate": "nano",
    "parameters": 9,
}


def account(kind: str, **changes: object) -> Account:
    return Account("run", kind, False, FACTS, {}, {}, (0, 0, 100), [], [], (), **changes)  # type: ignore[arg-type]


def evaluation(outputs: list[str], references: list[str]) -> Evaluation:
    return Evaluation(
        {"accuracy": 0.0},
        [""] * len(outputs),
        hypotheses=outputs,
        references=[[text] for text in references],
    )


def test_a_model_that_learnt_nothing_is_called_so() -> None:
    sentences = account("translation", learnt=False).quality("en")
    assert sentences[0].startswith("It has learnt nothing yet") and "38 steps" in sentences[0]
    for learnt in (False, True):  # after one epoch
        helps = account("translation", learnt=learnt)._helps("en")
        assert "try --minutes 40." in helps[0]
    headings = [heading for heading, *_ in account("translation", learnt=False).sections("en")]
    assert words("en")["headings"]["good"] not in headings
    reasons = account("translation").why("en")
    assert "Columns: a.tsv: column 1 -> column 2." in reasons
    assert any("3 pairs looked like target → source" in reason for reason in reasons)
    assert "learnt nothing" not in " ".join(account("translation").quality("en"))


def test_more_minutes_are_the_next_of_the_forecast() -> None:
    advised = [_more(minutes) for minutes in (1, 5, 10, 30, 60, 120, 2000)]
    assert advised == [10, 10, 40, 120, 120, 480, 4000]


def of_facts(**facts: object) -> Account:
    return Account("run", "translation", False, FACTS | facts, {}, {}, (0, 0, 100), [], [], ())


def test_a_run_to_start_from_that_loses_is_named() -> None:
    for language in ("en", "zh"):
        why = of_facts(rejected="runs/base").why(language)
        assert any("runs/base" in reason for reason in why)
        assert len(why) == len(account("translation").why(language)) + 1


def test_pairs_that_were_not_examined_are_counted() -> None:
    assert any("1,300 pairs were taken" in reason for reason in of_facts(unexamined=1300).why("en"))
    assert not any("were taken" in reason for reason in of_facts(unexamined=0).why("en"))


@pytest.mark.parametrize(("gain", "advised"), [((1.2, 0.3, 2.0), False), ((-5.0, -9, 1), True)])
def test_a_run_that_is_worse_than_its_start_is_called_so(
    gain: tuple[float, float, float], advised: bool
) -> None:
    sentence = of_facts(start="runs/base", start_gain=gain).quality("en")[-1]
    assert "runs/base as it was" in sentence and f"{gain[0]:+.1f}" in sentence
    assert ("keep that one" in sentence) is advised
    assert "as it was" not in " ".join(of_facts(start="", start_gain=()).quality("en"))


@pytest.mark.parametrize(
    ("kind", "outputs", "references", "learnt"),
    [
        ("translation", ["", "", ""] * 5, ["a house", "a tree", "the sea"] * 5, False),
        ("translation", ["the the", "the the"] * 9, ["a house", "the theme"] * 9, False),
        ("translation", ["a house", "a tree"] * 9, ["a house", "a tree is"] * 9, True),
        ("spelling", ["a b", "a b", "c"] * 9, ["x y", "z z", "q q q"] * 9, False),
        ("spelling", ["x y", "z k", "q"] * 9, ["x y", "z z", "q q q"] * 9, True),
        ("classification", ["ham"] * 40, ["ham"] * 25 + ["spam"] * 15, False),
        ("classification", ["ham", "spam"] * 20, ["ham", "spam"] * 20, True),
        ("classification", ["ham", "spam"] * 20, ["ham", "ham", "spam", "spam"] * 10, False),
    ],
)
def test_outputs_no_better_than_chance_are_recognised(
    kind: plans.Kind, outputs: list[str], references: list[str], learnt: bool
) -> None:
    assert has_learnt(evaluation(outputs, references), kind) is learnt


def test_twice_the_data_have_an_interval() -> None:
    references = ["ham", "spam"] * 20
    half = evaluation(["ham"] * 40, references)
    gain = gain_of(half, evaluation(references, references), "classification")
    assert gain[0] == pytest.approx(50) and 0 < gain[1] < gain[0] < gain[2]
    assert chance(half, "classification") > 50
    plan = Plan(Request([], 5), curve=[(10, 50.0), (20, 100.0)], gain=gain)
    assert "+50.0 points" in account("classification").with_curve(plan)._curve("en")
    plan.gain = (0.5, -3.0, 4.0)
    text = account("classification").with_curve(plan)._curve("en")
    assert "no clear gain" in text and "-3.0" in text and "+4.0" in text
    assert "Not measured" in account("classification").with_curve(Plan(Request([], 5)))._curve("en")


def test_a_curve_without_time_is_not_begun(tmp_path: Path) -> None:
    train = tmp_path / "train.jsonl"
    train.write_text('{"source": "a", "target": "b"}\n')
    facts = DataFacts("translation", 20_000, 40.0, 40.0, 90)
    prepared = PreparedData(facts, {"train": str(train)}, {}, 0, {}, {})
    spent = Plan(Request([], 5), prepared, 5_000.0, 500, seconds=299.0, overhead=5.0)
    Maker(tmp_path, spent).halves()  # a training would fail: there is no such model or data
    assert not spent.curve


def test_the_budget_is_what_is_left(tmp_path: Path) -> None:
    late = Maker(tmp_path, Plan(Request([], 5), seconds=200))  # reading took so long
    assert 60 < late._main_seconds() <= 70  # 100 s are left, 30 s for the test; no curve
    over = Maker(tmp_path, Plan(Request([], 5), seconds=400))
    assert over._main_seconds() == 5


def test_forms_of_a_model_are_checked_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = account("translation").becomes("en")
    assert "native engine" in sentences[0]
    assert sentences[1].startswith("It cannot become") and "it has no tables" in sentences[1]


def test_a_candidate_that_can_be_taken_along_goes_first_within_the_interval() -> None:
    facts = DataFacts("spelling", 1_000, 8.0, 8.0, 20)
    assert is_portable(facts, "speller") and not is_portable(facts, "recurrent")
    assert preferred(facts, [("recurrent", 0.0), ("speller", 3.0)])[0] == "speller"
    assert preferred(facts, [("recurrent", 0.0), ("speller", 12.0)])[0] == "recurrent"
