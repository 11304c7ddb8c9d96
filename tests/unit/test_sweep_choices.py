"""Choices of a sweep: what varies, what is refused, what is searched for."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import transduce
from transduce.errors import SettingError
from transduce.experiments.grid import Range, combinations, read_varied, split_values, value_of
from transduce.experiments.sweep import sweep
from transduce.experiments.trials import STUDY_FILE, TrialOutcome, Trials
from transduce.settings.sections import load_toml

# what varies


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1,0.2,0.3", ["0.1", "0.2", "0.3"]),
        ("[1,2]", ["[1,2]"]),
        ("[1,2],[3, [4,5]]", ["[1,2]", "[3, [4,5]]"]),
        ("{kind='noam',factor=2},{kind='cosine'}", ["{kind='noam',factor=2}", "{kind='cosine'}"]),
        ('"a,b",c', ['"a,b"', "c"]),
        ("'[',x", ["'['", "x"]),
        ("pre, post", ["pre", "post"]),
        ("", [""]),
        ("a,", ["a", ""]),
    ],
)
def test_values_are_cut_at_the_outer_commas(text: str, expected: list[str]) -> None:
    assert split_values(text) == expected


def test_what_is_fixed_and_what_varies() -> None:
    fixed, varied = read_varied(
        ["a.b=1", "model.dropout=0.1,1e-1,0.2", "x=[1,2]", "lr = 1e-4..1e-2", "n=2..8", "p=../x"]
    )
    assert fixed == ["a.b=1", "x=[1,2]", "p=../x"]
    assert varied == {
        "model.dropout": ("0.1", "0.2"),  # one number, however it is spelt
        "lr": Range(1e-4, 1e-2),
        "n": Range(2, 8),
    }


def test_ranges_are_whole_or_logarithmic_as_their_ends_say() -> None:
    assert Range(2, 8).whole and not Range(2, 8).logarithmic
    assert not Range(1, 8.0).whole
    assert Range(1e-4, 1e-3).logarithmic and Range(1, 10).logarithmic
    assert not Range(0.0, 0.5).logarithmic and not Range(-1.0, 100.0).logarithmic


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["a.b"], "write it as section.name=value"),
        (["a=1,2", "a=3"], "a is given twice"),
        (["a=1,,2"], "empty value; remove the extra comma"),
        (["a=2..1"], "must start at its smaller end"),
    ],
)
def test_what_cannot_vary_is_said(overrides: list[str], expected: str) -> None:
    with pytest.raises(SettingError, match=expected):
        read_varied(overrides)


def test_combinations_go_through_all_values_the_last_fastest() -> None:
    _, varied = read_varied(["a=1,2", "b=x,y,z"])
    result = list(combinations(varied))
    assert result[:3] == [("a=1", "b=x"), ("a=1", "b=y"), ("a=1", "b=z")]
    assert len(set(result)) == len(result) == 6
    assert value_of("[1, 'x']") == [1, "x"] and value_of("word") == "word"


@pytest.mark.system
@pytest.mark.parametrize(
    "overrides",
    [
        ["training.optimizer.weight_decay=0.1", "training.optimizer.kind=muon"],
        ["model.encoder.kind=recurrent", "model.decoder.kind=recurrent"],
    ],
)
def test_another_kind_means_what_it_means_to_train(
    overrides: list[str], recipe: Path, tmp_path: Path
) -> None:
    """The sections of the old kind, which the file does not name, go."""
    path, _ = transduce.train(recipe, tmp_path / "trained", [*overrides, "seed=1"])
    sweep(recipe, [*overrides, "seed=1,2"], tmp_path / "sweep")
    swept = load_toml(tmp_path / "sweep" / "001" / "recipe.toml")
    assert swept == load_toml(path / "recipe.toml")


@pytest.mark.parametrize(
    ("overrides", "search", "expected"),
    [
        ([], 0, "no setting varies"),
        (["seed=1"], 0, "no setting varies"),
        (["model.encoder.droput=0.1,0.2"], 0, "did you mean 'dropout'"),
        (["model.encoder.dropout=7,8"], 0, "model.encoder.dropout"),
        (["seed=1..9"], 0, "ranges need a search; add --search"),
        (["training.select_by=loss,bleu"], 0, "it cannot vary"),
        (["modle.x=1..2"], 3, "did you mean 'model'"),
    ],
)
def test_mistakes_are_found_before_anything_is_made(
    recipe: Path, tmp_path: Path, overrides: list[str], search: int, expected: str
) -> None:
    with pytest.raises(SettingError, match=expected):
        sweep(recipe, overrides, tmp_path / "s", search)
    assert not (tmp_path / "s").exists()


# searches


VARIED = read_varied(["x=1e-4..1e-1", "n=1..64", "c=pre,'[1,2]'"])[1]


def tell(trials: Trials, number: int, **outcome: Any) -> None:
    trials.end(number, TrialOutcome(**outcome), "loss")


def search_all(
    directory: Path, count: int, sittings: int = 1, seed: int = 3
) -> list[tuple[str, ...]]:
    """Settings tried by a search, at once or interrupted, for a score known beforehand."""
    tried = []
    for sitting in range(1, sittings + 1):
        trials = Trials(directory)
        for number in trials.search(VARIED, count, seed, parallel=False):
            if sitting < sittings and len(tried) >= sitting * count // sittings:
                break  # left open, as by a kill
            tried.append(trials.overrides(number))
            peak = float(value_of(tried[-1][0].partition("=")[2]))
            tell(trials, number, scores={"loss": abs(peak - 0.01)})
    return tried


def test_a_search_keeps_to_its_ranges_and_goes_on_where_it_was(tmp_path: Path) -> None:
    for name in ("one", "three"):
        (tmp_path / name).mkdir()
    tried = search_all(tmp_path / "one", 15)
    assert len(tried) == 15 and (tmp_path / "one" / STUDY_FILE).is_file()
    for x, n, c in tried:
        assert 1e-4 <= float(x.removeprefix("x=")) <= 1e-1
        assert 1 <= int(n.removeprefix("n=")) <= 64
        assert c in ("c=pre", "c='[1,2]'")
    assert len({x for x, _, _ in tried}) == 15
    assert search_all(tmp_path / "three", 15, sittings=3) == tried


def test_another_seed_is_another_search(tmp_path: Path) -> None:
    tried: set[tuple[str, ...]] = set()
    for seed in (1, 2, 3):
        (tmp_path / str(seed)).mkdir()
        tried |= set(search_all(tmp_path / str(seed), 8, seed=seed))
    assert len(tried) == 24


def test_a_search_looks_for_high_scores_where_high_is_better(tmp_path: Path) -> None:
    def later_half(higher: bool) -> float:
        directory = tmp_path / str(higher)
        directory.mkdir()
        trials, scores = Trials(directory), []
        for number in trials.search(read_varied(["x=0.0..1.0"])[1], 40, 49, parallel=False):
            scores.append(float(trials.overrides(number)[0].removeprefix("x=")))
            tell(trials, number, scores={"loss": scores[-1]}, higher_is_better=higher)
        return sum(scores[20:]) / 20

    assert later_half(True) > later_half(False) + 0.4


def test_failures_that_may_be_mended_are_tried_again(tmp_path: Path) -> None:
    trials = Trials(tmp_path)
    first, second = trials.search(VARIED, 2, seed=1, parallel=False)
    tell(trials, first, error="diverged")
    tell(trials, second, error="no disk", final=False)
    again = Trials(tmp_path)
    assert list(again.search(VARIED, 2, seed=1, parallel=False)) == [second]
    assert [run.result.error for run in again.runs()] == ["diverged", "no disk"]


def test_trials_outlive_the_process_and_keep_their_numbers(tmp_path: Path) -> None:
    varied = read_varied(["a=1,2", "b='ü',x"])[1]
    trials = Trials(tmp_path)
    assert list(trials.grid(varied)) == [0, 1, 2, 3]
    tell(trials, 1, step=5, best_step=3, seconds=0.5, scores={"loss": 1 / 3})
    again = Trials(tmp_path)
    (run,) = again.runs()
    assert (run.path, run.overrides) == (tmp_path / "002", ("a=1", "b=x"))
    assert run.result == TrialOutcome(step=5, best_step=3, seconds=0.5, scores={"loss": 1 / 3})
    assert list(again.grid(varied)) == [0, 2, 3]


def test_without_optuna_the_extra_is_named(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for overrides, search in ((["seed=1..9"], 2), (["seed=1,2"], 0)):
        with pytest.raises(SettingError, match="needs the extra 'sweep'"):
            sweep(recipe, overrides, tmp_path / "s", search)
    assert not (tmp_path / "s").exists()


def test_trials_of_the_same_settings_are_trained_once(recipe: Path, tmp_path: Path) -> None:
    done = sweep(recipe, ["seed=1..2", "training.steps=1"], tmp_path / "s", search=5)
    assert 1 <= len(done.runs) <= 2
    assert len(list((tmp_path / "s").glob("*/recipe.toml"))) == len(done.runs)
