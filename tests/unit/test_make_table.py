"""Measurements of `make`: regret of its table by sets, and README's recipes beside it."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import make_against_readme
import make_table

from transduce.making.collect import Collector
from transduce.recipes import parse_recipe


def test_the_interval_of_a_mean_is_over_sets() -> None:
    assert make_table.interval_of_mean([[2.0, 2.0], [2.0]]) == (2.0, 2.0)
    low, high = make_table.interval_of_mean([[0.0] * 9, [3.0] * 9, [0.0], [3.0]])
    assert 0.0 <= low < 0.8 and 2.2 < high <= 3.0  # two sets hold nearly all values


def test_the_regret_is_printed_by_kind_with_its_interval(
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_table.regrets()
    printed = capsys.readouterr().out
    for kind in ("translation", "spelling", "classification"):
        assert f"\n{kind}: mean regret " in printed


@pytest.mark.parametrize("is_labels", [False, True])
def test_recipes_of_readme_take_other_files(is_labels: bool) -> None:
    paths = {split: f"{split}.jsonl" for split in ("train", "valid")}
    recipe = make_against_readme.readme_recipe(is_labels, paths)
    parsed: Any = parse_recipe(recipe, "README.md")
    assert parsed.task == ("classification" if is_labels else "translation")
    assert str(parsed.data.train.path) == "train.jsonl" and parsed.data.test is None
    assert parsed.training.batch_tokens == 1024


def test_odd_columns_are_read_as_the_sides(tmp_path: Path) -> None:
    pairs = [(f"the number {n}, you see", f"数 {n} だ 。") for n in range(60)]
    path = make_against_readme.written("enja", pairs, tmp_path)
    assert list(Collector([path], "ja").pairs()) == pairs
