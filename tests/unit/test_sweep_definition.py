"""What a sweep is asked for: settings of all runs, settings that vary, and going on with both."""

from pathlib import Path

import pytest

import transduce
from helpers.tiny_run import write_tiny
from transduce.errors import RunError
from transduce.experiments.grid import value_of
from transduce.experiments.sweep import sweep
from transduce.experiments.trials import STUDY_FILE
from transduce.settings.sections import load_toml, to_toml


def forget_outcomes(directory: Path) -> None:
    """Have all runs trained again, as far as they were not."""
    (directory / STUDY_FILE).unlink()


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = ("training.steps=2", "training.validate_every=2")
    return write_tiny(tmp_path_factory.mktemp("recipe"), *settings)


def test_a_setting_of_all_runs_reaches_the_kind_that_varies(recipe: Path, tmp_path: Path) -> None:
    overrides = ["training.schedule.kind=cosine,inverse-sqrt", "training.schedule.peak=0.0123"]
    done = sweep(recipe, overrides, tmp_path / "sweep")
    assert [run.overrides for run in done.runs] == [
        ("training.schedule.kind=cosine",),
        ("training.schedule.kind=inverse-sqrt",),
    ]
    for run, kind in zip(done.runs, ("cosine", "inverse-sqrt"), strict=True):
        schedule = load_toml(run.path / "recipe.toml")["training"]["schedule"]
        assert (schedule["kind"], schedule["peak"]) == (kind, 0.0123)
    assert len(sweep(done.directory, resume=True).runs) == 2


@pytest.mark.system
@pytest.mark.parametrize("given", ["in the recipe", "by --set"])
def test_a_file_that_is_named_from_here_is_found_from_elsewhere(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.chdir(tmp_path)
    transduce.train(recipe, Path("first"))
    tokenizer = {"kind": "file", "path": "first/target_tokenizer.json"}
    settings, overrides = load_toml(recipe), ["seed=1,2"]
    if given == "by --set":
        overrides += ["text.target.kind=file", "text.target.path=first/target_tokenizer.json"]
    else:
        settings["text"]["target"] = tokenizer
    Path("here.toml").write_text(to_toml(settings), encoding="utf-8")
    directory = sweep(Path("here.toml"), overrides, tmp_path / "sweep").directory
    forget_outcomes(directory)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = sweep(directory, resume=True)
    assert [run.result.error for run in again.runs] == ["", ""]
    assert Path.cwd() == tmp_path / "elsewhere"


@pytest.mark.system
def test_the_place_of_a_sweep_is_gone(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    directory = sweep(recipe, ["seed=1,2"], tmp_path / "sweep").directory
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").rmdir()
    with pytest.raises(RunError, match="is gone; restore it, or change started_in"):
        sweep(directory, resume=True)


@pytest.mark.system
def test_a_sweep_over_paths_goes_on_from_anywhere(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["one", "two, too"]
    for name in names:
        transduce.train(recipe, Path(name))
    settings = {**load_toml(recipe), "fine_tune": {"run": "one"}}
    settings.pop("model"), settings.pop("text")
    Path("tuned.toml").write_text(to_toml(settings), encoding="utf-8")
    overrides = ["fine_tune.run='one','two, too'", "training.schedule.kind=cosine,inverse-sqrt"]
    first = sweep(Path("tuned.toml"), overrides, tmp_path / "sweep")
    assert [value_of(run.overrides[0].partition("=")[2]) for run in first.runs] == [
        name for name in names for _ in range(2)
    ]
    forget_outcomes(first.directory)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [run.result.error for run in sweep(first.directory, resume=True).runs] == [""] * 4
