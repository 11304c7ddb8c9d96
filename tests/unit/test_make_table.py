"""Regret of the table of `make`: its interval by sets."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import make_table


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
