"""Runs side by side: settings, scores, curves."""

from __future__ import annotations

import json
import random
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.tiny_run import reversal_pairs, train_tiny, write_tsv
from transduce.errors import DataError, RunError, SettingError
from transduce.experiments.compare import (
    RunComparison,
    compare_settings,
    compare_with_first,
    differing_settings,
    over_runs,
    short_names,
)
from transduce.experiments.curves import check_picture, draw_curves
from transduce.support.tables import table
from transduce.tasks.evaluation import Evaluation
from transduce.training.log import Curves, kept_validation, read_curves
from transduce.training.weight_files import checkpoints_of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("runs")
    data = write_tsv(directory / "a.tsv", reversal_pairs(60))
    changes = [
        ("training.schedule.peak=0.05",),
        ("model.encoder.dropout=0.2", "training.schedule={kind='noam'}"),
    ]
    names = ("one", "two")
    return [
        train_tiny(
            data, directory / name, "training.steps=9", "training.validate_every=3", *change
        )[0]
        for name, change in zip(names, changes, strict=True)
    ]


def evaluation(
    hypotheses: list[str], references: list[str], sources: list[str] | None = None
) -> Evaluation:
    right = sum(a == b for a, b in zip(hypotheses, references, strict=True))
    return Evaluation(
        {"accuracy": 100 * right / len(references)},
        sources or [str(i) for i in range(len(references))],
        hypotheses,
        [[reference] for reference in references],
    )


def test_settings_that_differ_and_no_others(runs: list[Path]) -> None:
    assert differing_settings(runs) == {
        "model.encoder.dropout": [0.0, 0.2],
        "training.schedule.kind": ["constant", "noam"],
        "training.schedule.peak": [0.05, None],
        "training.schedule.warmup_steps": [1, 4000],
        "training.schedule.factor": [None, 1.0],
    }
    assert differing_settings([runs[0], runs[0]]) == {}
    with pytest.raises(RunError, match="not a directory"):
        differing_settings([runs[0], runs[0] / "nowhere"])


def test_names_are_short_where_they_can_be() -> None:
    assert short_names([Path("runs/a"), Path("other/b")]) == ["a", "b"]
    assert short_names([Path("runs/a"), Path("other/a")]) == ["runs/a", "other/a"]


def test_the_bootstrap_finds_a_clear_difference_and_doubts_a_small_one() -> None:
    right = [str(i % 7) for i in range(200)]
    poor = ["x" if i % 2 else word for i, word in enumerate(right)]
    nearly = [*right[:-1], "x"]
    first = evaluation(poor, right)
    clear = compare_with_first(first, evaluation(right, right)).differences["accuracy"]
    assert clear.difference == pytest.approx(50) and clear.low > 40 and clear.p_value < 0.01
    small = compare_with_first(evaluation(nearly, right), evaluation(right, right)).differences[
        "accuracy"
    ]
    assert small.difference == pytest.approx(0.5) and small.low <= 0


def test_what_cannot_be_compared_says_why() -> None:
    right = ["a", "b", "c"]
    first = evaluation(right, right)
    others = {
        "data differ from the": evaluation(right, right, sources=["x", "y", "z"]),
        "data differ": evaluation(right, ["a", "b", "d"]),
        "outputs cannot be compared": Evaluation({"perplexity": 3.0}, ["0", "1", "2"]),
    }
    kinds = [replace(first, scores={**first.scores, "bleu_signature": f"tok:{k}"}) for k in "ab"]
    assert compare_with_first(*kinds).note == "its bleu is tok:b, but the first run's is tok:a"
    for reason, other in others.items():
        result = compare_with_first(first, other)
        assert reason in result.note and not result.differences
        assert result.evaluation is other
    assert "first run was not evaluated" in compare_with_first(None, first).note


def test_curves_are_read_without_the_half_written_line(runs: list[Path], tmp_path: Path) -> None:
    curves = read_curves(runs[0])
    assert [line["step"] for line in curves.train] == list(range(1, 10))
    assert [line["step"] for line in curves.validation] == [3, 6, 9]
    assert curves.step == 9 and curves.seconds is not None and curves.seconds > 0
    text = (runs[0] / "metrics.jsonl").read_text()
    (tmp_path / "metrics.jsonl").write_text(text + '{"kind": "train", "st')
    assert read_curves(tmp_path) == curves
    assert read_curves(tmp_path / "imported") == Curves([], [])
    assert Curves([], []).step is None and Curves([], []).seconds is None


def test_the_validation_that_was_kept(runs: list[Path], tmp_path: Path) -> None:
    curves = read_curves(runs[0])
    progress = json.loads((checkpoints_of(runs[0])[-1] / "progress.json").read_text())
    kept = kept_validation(runs[0], curves)
    assert kept["step"] == progress["best_step"]
    assert kept["loss"] == progress["best_scores"]["loss"]
    # Without checkpoints too; where the weights say nothing the least loss; an average at the end
    # stands for itself.
    (tmp_path / "weights.safetensors").write_bytes((runs[0] / "weights.safetensors").read_bytes())
    step = kept["step"]
    lines = [{"step": step - 1, "loss": 0.1}, {"step": step, "loss": 0.3}]
    assert kept_validation(tmp_path, Curves([], lines)) == lines[1]
    (tmp_path / "weights.safetensors").unlink()
    lines = [{"step": step, "loss": loss} for step, loss in [(1, 3.0), (2, 1.0), (3, 2.0)]]
    assert kept_validation(tmp_path, Curves([], lines)) == lines[1]
    averaged = {"step": 3, "loss": 2.5, "averaged": 2}
    assert kept_validation(tmp_path, Curves([], [*lines, averaged])) == averaged
    assert kept_validation(tmp_path, Curves([], [])) == {}


@pytest.mark.system
def test_the_picture_shows_each_run_and_is_the_same_each_time(
    runs: list[Path], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    curves = {name: read_curves(run) for name, run in zip("ab", runs, strict=True)}
    curves["imported"] = Curves([], [])
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    draw_curves(curves, one)
    draw_curves(curves, two)
    assert one.read_bytes() == two.read_bytes()
    text = one.read_text()
    assert all(re.search(rf">{name}</text>", text) for name in (*curves, "step"))
    draw_curves(curves, tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    draw_curves({"imported": Curves([], [])}, tmp_path / "empty.svg")
    with pytest.raises(DataError, match="cannot be written"):
        draw_curves(curves, tmp_path / "nowhere" / "one.svg")


def test_a_picture_has_a_known_ending_and_needs_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match=r"\.svg or \.png"):
        check_picture(Path("a.jpg"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SettingError, match="needs the extra 'plot'"):
        check_picture(Path("a.svg"))


def test_tables_put_numbers_to_the_right() -> None:
    lines = list(table(["run", "steps", "kind"], [["a", 12345, "x"], ["bcd", None, None]]))
    assert lines == ["run   steps  kind", "a    12,345  x", "bcd       -  -"]


def test_settings_are_compared_over_seeds_and_items() -> None:
    right = [str(i % 7) for i in range(200)]

    def with_errors(share: int, seed: int) -> Evaluation:
        chance = random.Random(seed)
        return evaluation([w if chance.random() * 100 > share else "x" for w in right], right)

    runs = [with_errors(share, seed) for share in (30, 10) for seed in (1, 2, 3)]
    comparisons = [RunComparison(runs[0])]
    comparisons += [compare_with_first(runs[0], run) for run in runs[1:]]
    settings = {"seed": [1, 2, 3, 1, 2, 3], "dropout": [0.3] * 3 + [0.1] * 3}
    poor, good = compare_settings(list("abcdef"), settings, comparisons)
    assert (poor.name, poor.runs, poor.differences) == ("dropout = 0.3", ["a", "b", "c"], {})
    assert (good.name, good.runs) == ("dropout = 0.1", ["d", "e", "f"])
    difference = good.differences["accuracy"]
    means = [sum(float(e.scores["accuracy"]) for e in s.evaluations) / 3 for s in (poor, good)]
    assert difference.difference == pytest.approx(means[1] - means[0])
    assert 5 < difference.low < difference.difference < difference.high < 35
    assert difference.p_value < 0.01
    # one setting, or a setting with one seed: nothing to compare over seeds
    assert compare_settings(list("abc"), {"seed": [1, 2, 3]}, comparisons[:3]) == []
    single = {"seed": [1, 2, 3, 1], "dropout": [0.3] * 3 + [0.1]}
    assert compare_settings(list("abcd"), single, comparisons[:4]) == []


def test_spread_between_seeds_widens_the_interval() -> None:
    right = [str(i % 7) for i in range(400)]

    def first_right(count: int) -> Evaluation:
        return evaluation([*right[:count], *["x"] * (400 - count)], right)

    def interval(*counts: int) -> float:
        compared = over_runs(
            [first_right(200), first_right(200)], [first_right(count) for count in counts]
        )
        return compared["accuracy"].high - compared["accuracy"].low

    assert interval(200, 280) > 1.5 * interval(240, 240)
