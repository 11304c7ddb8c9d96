"""Published runs: the files that others need, no path of this machine, and a run again."""

from pathlib import Path

import pytest

import transduce
from transduce.errors import RunError, SettingError
from transduce.runs.importing import import_run
from transduce.runs.publishing import publish_run, without_private_paths


def test_a_published_run_answers_as_before_and_names_no_place(
    trained: transduce.Run, tmp_path: Path
) -> None:
    run = trained
    published = publish_run(run.path, tmp_path / "hub", licence="apache-2.0")
    text = "".join(
        file.read_text(encoding="utf-8")
        for file in published.iterdir()
        if file.suffix in (".toml", ".md")
    )
    assert str(run.path.parent) not in text and "license: apache-2.0" in text
    assert not (published / "checkpoints").exists()
    again = transduce.load(import_run(published, tmp_path / "again"))
    assert again("dcab").text == run("dcab").text


def test_paths_outside_become_names() -> None:
    given = {
        "root": "/home/x",
        "train": {"path": "/home/x/a.tsv", "column": "a/b"},
        "run": "../base",
    }
    assert without_private_paths(given) == {
        "train": {"path": "a.tsv", "column": "a/b"},
        "run": "base",
    }


def test_mistakes_are_one_line(trained: transduce.Run, tmp_path: Path) -> None:
    run = trained
    with pytest.raises(RunError, match="exists already; give another DIRECTORY"):
        publish_run(run.path, tmp_path)
    with pytest.raises(SettingError, match="is not an identifier"):
        publish_run(run.path, tmp_path / "hub", licence="My licence!")
