"""One sentence on its way through several runs: terminal, JSON and page."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from helpers.random_translator import random_translator
from transduce.errors import SettingError
from transduce.explain.explanation import ComparedRun, SideBySide
from transduce.explain.report import BLANK, abreast, report_side_by_side
from transduce.explain.runs import explain_runs
from transduce.explain.tasks import explain_translation

TEXT = "w3 w1 w4 w1 w5"
RNN = {"kind": "recurrent"}


def three(text: str = TEXT) -> SideBySide:
    """A fixed context, recurrent attention and a Transformer."""
    made = {
        "fixed": random_translator(RNN, {**RNN, "context": {"kind": "fixed"}}, trained=False),
        "additive": random_translator(RNN, {**RNN, "context": {"kind": "additive"}}, trained=False),
        "transformer": random_translator(),
    }
    return SideBySide(
        tuple(
            ComparedRun(replace(explain_translation(one, (text,)), run=name), 1000 * n, 0.5)
            for n, (name, one) in enumerate(made.items(), 1)
        )
    )


@pytest.fixture(scope="module")
def found() -> SideBySide:
    return three()


def test_figures_are_those_of_the_explanation(found: SideBySide) -> None:
    for run in found.runs:
        steps = [step.probability for step in run.explanation.steps]
        assert run.log_prob == pytest.approx(math.log(math.prod(steps)), abs=1e-4)
        search = run.explanation.search
        assert search is not None
        (won,) = [node for node in search.nodes if node.fate == "won"]
        assert run.score == won.score


def test_the_layout_is_that_of_each_run_and_its_figures(found: SideBySide) -> None:
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert set(data) == {"format", "task", "inputs", "runs"}
    assert data["inputs"] == {"source": TEXT} and data["task"] == "translation"
    for shown, run in zip(data["runs"], found.runs, strict=True):
        alone = json.loads(json.dumps(run.explanation.as_dict()))
        assert {key: shown[key] for key in alone} == alone
        assert set(shown) - set(alone) == {"parameters", "seconds", "log_prob", "score"}
        assert shown["parameters"] == run.parameters
        assert shown["log_prob"] == pytest.approx(run.log_prob, rel=1e-4)


def test_the_report_stands_side_by_side(found: SideBySide) -> None:
    lines = report_side_by_side(found, 400).splitlines()
    assert lines[0] == TEXT
    (names,) = [line for line in lines if line.split() == ["fixed", "additive", "transformer"]]
    titles = lines[lines.index(names) + 1]
    assert titles.startswith("one vector for every step, no choice of position   ")
    assert titles.split("   ")[-1].strip() == "decoder.layers.1.cross_attention, mean of 2 heads"
    assert [line.split()[2:8] for line in lines if line.startswith("every step")] == [["0.17"] * 6]
    for run in found.runs:
        (row,) = [line for line in lines if line.startswith(run.explanation.run) and "," in line]
        assert row.endswith(run.explanation.answer) and f"{run.parameters:,}" in row


def test_labels_stand_side_by_side(found: SideBySide) -> None:
    labelled = replace(found.runs[0].explanation, steps=(), labels=(("spam", 0.75), ("ham", 0.25)))
    lines = report_side_by_side(SideBySide((replace(found.runs[0], explanation=labelled),)), 80)
    assert "labels and their probabilities\nfixed  spam 0.75  ham 0.25\n" in lines


def test_a_narrow_terminal_has_pictures_below_each_other(found: SideBySide) -> None:
    lines = report_side_by_side(found, 60).splitlines()
    assert {"fixed", "additive", "transformer"} <= set(lines)


def test_pictures_fill_a_line_to_its_end() -> None:
    assert abreast(["ab\nc", "de", "f"], 7) == ["ab   de\nc", "f"]
    assert abreast(["ab", "de"], 6) == ["ab", "de"]
    assert abreast(["wider than this"], 3) == ["wider than this"]
    assert abreast([], 10) == []


def test_a_blank_text_is_one_line() -> None:
    found = three(" ")
    assert report_side_by_side(found, 80) == BLANK
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert [one["log_prob"] for one in data["runs"]] == [None] * 3
    assert found.page()


def test_no_run_is_no_comparison() -> None:
    with pytest.raises(SettingError, match="at least one run"):
        explain_runs([], TEXT)
