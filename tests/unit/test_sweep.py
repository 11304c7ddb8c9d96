"""Sweeps: what is remembered, what is trained, what comes of it."""

from __future__ import annotations

import errno
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import transduce
from transduce.cli.train import _train_as_object, _train_as_table
from transduce.errors import MemoryLimitError, RunError, SettingError
from transduce.experiments.sweep import Sweep, sweep
from transduce.experiments.trials import Definition, SweptRun, TrialOutcome, Trials, runs_in
from transduce.training.log import TrainingLog, read_curves
from transduce.training.signals import InterruptedTraining


@pytest.fixture(scope="module")
def begun(recipe: Path) -> Path:
    """The directory of a sweep."""
    return sweep(recipe, ["seed=1,2"], recipe.parent / "begun").directory


# what is remembered


def test_a_definition_is_read_as_written(tmp_path: Path) -> None:
    definition = Definition({"task": "x", "data": {"n": 1}}, ("a=1,2", "b=3"), 7, "/work", True)
    definition.write(tmp_path)
    assert Definition.read(tmp_path) == definition
    (tmp_path / "sweep.toml").write_text("overrides = 3\n")
    with pytest.raises(RunError, match="damaged"):
        Definition.read(tmp_path)


# grids


def scores_of(done: Sweep) -> dict[tuple[str, ...], Mapping[str, float]]:
    return {run.overrides: run.result.scores for run in done.runs}


@pytest.mark.system
def test_a_grid_trains_each_combination_as_train_would(recipe: Path, tmp_path: Path) -> None:
    done = sweep(recipe, ["seed=1,2", "training.schedule.peak=1e-3,1e-2"], tmp_path / "sweep")
    assert done.varied == ("seed", "training.schedule.peak")
    assert [run.path.name for run in done.runs] == ["001", "002", "003", "004"]
    assert not done.failed
    settings = [run.overrides for run in done.runs]
    assert settings[1] == ("seed=1", "training.schedule.peak=0.01")
    assert done.best is not None
    least = min(run.result.scores["loss"] for run in done.runs)
    assert done.best.result.scores["loss"] == least
    _, alone = transduce.train(recipe, tmp_path / "alone", settings[1])
    assert alone.scores == done.runs[1].result.scores
    weights = [path / "weights.safetensors" for path in (tmp_path / "alone", done.runs[1].path)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_the_best_is_the_highest_where_high_is_better() -> None:
    runs = [
        SweptRun(Path(name), (), TrialOutcome(scores={"bleu": score}, higher_is_better=True))
        for name, score in [("a", 1.0), ("b", 3.0), ("c", 2.0)]
    ]
    failed = SweptRun(Path("d"), (), TrialOutcome(error="no"))
    done = Sweep(Path(), (), "bleu", [failed, *runs])
    assert done.best is runs[1] and done.failed == [failed]
    assert Sweep(Path(), (), "bleu", [failed]).best is None


def a_sweep(varied: tuple[str, ...], scores: Mapping[str, float | None]) -> Sweep:
    """Runs by their overrides; None failed."""
    runs = [
        SweptRun(Path(f"{number:03d}"), tuple(overrides.split()), result)
        for number, (overrides, score) in enumerate(scores.items(), 1)
        for result in [
            TrialOutcome(error="no") if score is None else TrialOutcome(scores={"loss": score})
        ]
    ]
    return Sweep(Path("s"), varied, "loss", runs)


def test_a_sweep_is_a_table_in_a_notebook() -> None:
    done = a_sweep(("seed", "a.b"), {"seed=1 a.b=x": 1.23456, "seed=2 a.b=<y>": None})
    table = done._repr_html_()
    assert [name in table for name in ("<th>a.b</th>", "<th>loss</th>", ">1.235</td>")] == [
        True
    ] * 3
    assert ">&lt;y&gt;</td>" in table and ">no</td>" in table


SEEDED = {
    "seed=1 a.b=x": 1.0,
    "seed=1 a.b=y": 2.0,
    "seed=2 a.b=x": 7.0,
    "seed=2 a.b=y": 2.5,
    "seed=3 a.b=x": None,
    "seed=3 a.b=y": 3.0,
}


def test_the_best_settings_are_those_with_the_best_mean_over_seeds() -> None:
    done = a_sweep(("seed", "a.b"), SEEDED)
    one, two = done.groups
    assert (one.overrides, one.scores("loss"), one.mean("loss")) == (("a.b=x",), [1.0, 7.0], 4.0)
    assert (two.overrides, two.mean("loss"), two.deviation("loss")) == (("a.b=y",), 2.5, 0.5)
    assert done.best_group == two
    assert done.best is done.runs[1]  # though the first run has the least loss of all
    alone = a_sweep(("a.b",), {"a.b=x": 2.0, "a.b=y": 1.0})
    assert [group.deviation("loss") for group in alone.groups] == [None, None]
    assert alone.best is alone.runs[1]


def test_chance_is_told_from_settings() -> None:
    lines = list(_train_as_table(a_sweep(("seed", "a.b"), SEEDED)))
    assert lines[8:12] == [
        "mean and standard deviation over seeds",
        "a.b  runs  loss       ±",
        "x       2     4  4.2426",
        "y       3   2.5     0.5",
    ]
    assert lines[-2:] == ["005 failed: no", "best by mean loss: a.b=y, best of its runs: 002"]
    only_seeds = a_sweep(("seed",), {"seed=1": 1.0, "seed=2": 2.0})
    lines = list(_train_as_table(only_seeds))
    assert lines[4:7] == ["mean and standard deviation over seeds", *lines[5:7]]
    assert lines[6].split() == ["2", "1.5", "0.70711"]
    assert "only the seed varies" in lines[-1] and "best by" not in "".join(lines)
    (group,) = _train_as_object(only_seeds)["over_seeds"]
    assert group == {
        "settings": {},
        "runs": ["001", "002"],
        "mean": {"loss": 1.5},
        "standard_deviation": {"loss": pytest.approx(0.5**0.5)},
    }
    assert _train_as_object(a_sweep(("a.b",), {"a.b=x": 2.0}))["over_seeds"] == []


def test_seconds_are_those_of_the_log(begun: Path) -> None:
    for run in Trials(begun).runs():
        assert run.result.seconds == read_curves(run.path).seconds


def test_a_failed_run_is_named_and_stops_no_other(
    recipe: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    overrides = ["training.schedule.peak=1e-3,1e30", "model.encoder.n_heads=2,3"]
    done = sweep(recipe, overrides, tmp_path / "s")
    errors = {run.path.name: run.result.error for run in done.runs}
    assert errors["001"] == ""
    assert "n_heads" in errors["002"] and "3" in errors["002"]
    assert "lower the learning rate" in errors["003"]
    assert len(done.failed) == 3
    assert done.best is not None and done.best.path.name == "001"
    # What would end the same way is not tried again; what may have been mended is.
    assert done.runs[2].result.final and not done.runs[1].result.final
    # `transduce compare` has nothing of a run that was refused before it began, and says so.
    caplog.clear()
    assert [run.name for run in runs_in(tmp_path / "s")] == ["001", "003"]
    message = [record.message for record in caplog.records]
    assert (
        len(message) == 3
        and "002 failed and is skipped: " in message[0]
        and "n_heads" in message[0]
    )
    assert "003 failed and is compared as far as it got: " in message[1]
    assert "004 failed and is skipped" in message[2]


def test_a_bug_in_one_run_does_not_stop_the_others(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("of ours\nwith more lines")

    monkeypatch.setattr("transduce.experiments.trials.train", broken)
    done = sweep(recipe, ["seed=1,2"], tmp_path / "s")
    assert [run.result.error for run in done.runs] == ["ZeroDivisionError: of ours"] * 2
    assert "Traceback" in capfd.readouterr().err
    monkeypatch.undo()
    assert not sweep(tmp_path / "s", resume=True).failed


@pytest.mark.system
@pytest.mark.parametrize(
    ("error", "output"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (MemoryLimitError("out of memory at step 3"), "out of memory at step 3"),
        (RuntimeError("[enforce fail] can't allocate memory"), "out of memory; lower training."),
    ],
)
def test_what_the_machine_lacked_is_told_in_a_line_and_tried_again(
    recipe: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    error: Exception,
    output: str,
) -> None:
    def lacking(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("transduce.experiments.trials.train", lacking)
    done = sweep(recipe, ["seed=1,2"], tmp_path / "s")
    assert [output in run.result.error for run in done.runs] == [True, True]
    assert not any(run.result.final for run in done.runs)
    assert "Traceback" not in capfd.readouterr().err
    monkeypatch.undo()
    assert not sweep(tmp_path / "s", resume=True).failed


def interrupt_at(step: int, of_run: int, patch: pytest.MonkeyPatch) -> None:
    """Have a SIGTERM arrive at that step of the n-th run."""
    show, begun = TrainingLog.training, [0]

    def show_and_signal(log: TrainingLog, journal: Any, *rest: float) -> None:
        show(log, journal, *rest)
        begun[0] += journal["step"] == 1
        if journal["step"] == step and begun[0] == of_run:
            signal.raise_signal(signal.SIGTERM)

    patch.setattr(TrainingLog, "training", show_and_signal)


@pytest.mark.system
@pytest.mark.parametrize(
    ("overrides", "search"),
    [
        (("training.schedule.peak=1e-3,1e-2,3e-2", "model.encoder.dropout=0.2"), 0),
        (("training.schedule.peak=1e-4..1e-1", "model.encoder.norm_order=pre,post"), 3),
    ],
)
def test_an_interrupted_sweep_goes_on_as_if_it_had_not_been(
    recipe: Path, tmp_path: Path, overrides: tuple[str, ...], search: int
) -> None:
    whole = sweep(recipe, overrides, tmp_path / "whole", search)
    part = tmp_path / "part"
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(5, 2, patch)
        with pytest.raises(InterruptedTraining, match="after step 5"):
            sweep(recipe, overrides, part, search)
    first = (part / "001" / "metrics.jsonl").stat().st_mtime_ns
    assert sorted(p.name for p in part.glob("0*")) == ["001", "002"]
    done = sweep(part, resume=True)
    assert (part / "001" / "metrics.jsonl").stat().st_mtime_ns == first  # not trained again
    assert len(done.runs) == 3
    assert scores_of(done) == scores_of(whole)
    for name in ("001", "002", "003"):
        files = [root / name / "weights.safetensors" for root in (part, tmp_path / "whole")]
        assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.system
def test_a_search_may_get_more_trials(recipe: Path, tmp_path: Path) -> None:
    directory = tmp_path / "s"
    before = sweep(recipe, ["training.schedule.peak=1e-3..1e-1"], directory, 2)
    times = [(run.path / "metrics.jsonl").stat().st_mtime_ns for run in before.runs]
    done = sweep(directory, search=3, resume=True)
    assert len(done.runs) == 3 and list(done.runs[:2]) == list(before.runs)
    assert times == [(run.path / "metrics.jsonl").stat().st_mtime_ns for run in before.runs]


@pytest.mark.parametrize("options", [{"search": 3}, {"overrides": ["seed=2,3"]}])
def test_a_sweep_does_not_change(begun: Path, options: Any) -> None:
    before = (begun / "sweep.toml").read_bytes()
    with pytest.raises(SettingError, match=r"started as a grid|drop --set"):
        sweep(begun, resume=True, **options)
    assert (begun / "sweep.toml").read_bytes() == before


def test_a_sweep_is_started_once(recipe: Path, begun: Path, tmp_path: Path) -> None:
    for start in (recipe, begun):
        with pytest.raises(RunError, match=r"already contains a sweep.*--resume"):
            sweep(start, ["seed=1,2"], begun)
    with pytest.raises(RunError, match="not the directory of a sweep"):
        sweep(recipe, resume=True)


def test_a_directory_with_other_things_is_left_alone(recipe: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("mine")
    with pytest.raises(RunError, match="is not a sweep"):
        sweep(recipe, ["seed=1,2"], tmp_path)
    with pytest.raises(RunError, match="is a file"):
        sweep(recipe, ["seed=1,2"], tmp_path / "letters")
