"""A line's translation does not depend on the lines around it, their order, or the threads."""

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import transduce

ROOT = Path(__file__).parents[2]
RUN = ROOT / "tests" / "runs" / "0.1.0" / "translation"
sys.path.insert(0, str(ROOT / "benchmarks"))
import invariance  # noqa: E402  a script, not a package


@pytest.fixture(scope="module")
def run() -> transduce.Run:
    return transduce.load(RUN, "cpu")


def some_lines(count: int) -> list[str]:
    """Words that it knows and letters that it does not, short and long, blank ones too."""
    chance = random.Random(1)
    words = ["good", "bad", "dog", "film", "and", "zebra", "Ü", "北京", "x" * 40]
    lines = [" ".join(chance.choices(words, k=chance.randint(1, 12))) for _ in range(count - 2)]
    return ["", *lines, " "]


@pytest.mark.system
@pytest.mark.parametrize("beam", [1, 5])
def test_the_same_text_in_every_way(
    run: transduce.Run, beam: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invariance, "NEIGHBOUR_CHARACTERS", 1000)
    monkeypatch.setattr(invariance, "NEIGHBOURS", 1)
    scores = invariance.measure(run, some_lines(16), beam, ["1", "7", "tokens"])
    assert len(scores) == 7
    for name, measured in scores.items():
        assert measured["differ"] == [], name
        assert measured["largest_drift_of_a_score"] < 1e-5, name
    assert torch.get_num_threads() == 1


def test_a_difference_is_counted_and_its_scores_are_told(run: transduce.Run) -> None:
    lines = ["good dog", "bad film"]
    before = run.translate_batch(lines)
    after = [before[0], replace(before[1], text="other", score=before[1].score + 1e-7)]
    (result,) = invariance.differences(lines, before, after)
    assert result["line"] == 2 and result["texts"][1] == "other"
    assert 0 < result["last_places"] < 2
