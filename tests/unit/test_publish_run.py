"""Published runs: the files that others need, no path of this machine, and a run again."""

from pathlib import Path

import pytest

import transduce
from transduce.errors import RunError, SettingError
from transduce.runs.exporting import publish_run, without_private_paths
from transduce.runs.importing import import_run


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


RUNS = Path(__file__).parents[1] / "runs" / "0.1.0"


def test_a_published_classifier_answers_as_before(tmp_path: Path) -> None:
    published = publish_run(RUNS / "classification", tmp_path / "hub")
    again = transduce.load(import_run(published, tmp_path / "again"), "cpu")
    right = transduce.load(RUNS / "classification", "cpu")
    texts = ["a good film", "bad"]
    answers = [[answer.fields() for answer in run.predict(texts)] for run in (again, right)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("family", ["m2m100", "t5"])
def test_a_published_import_keeps_its_tokenizers(family: str, tmp_path: Path) -> None:
    from helpers.text_to_text import made

    made(family, tmp_path / "theirs")
    run = import_run(tmp_path / "theirs", tmp_path / "run")
    published = publish_run(run, tmp_path / "hub", licence="mit")
    again = import_run(published, tmp_path / "again")
    pairs = [(run / file.name, file) for file in again.iterdir() if "tokenizer" in file.name]
    assert pairs and all(a.read_bytes() == b.read_bytes() for a, b in pairs)
    assert "license: mit" in (published / "README.md").read_text(encoding="utf-8")
    line = "<en> <de> hello there" if family == "m2m100" else "hello there"
    texts = [transduce.load(path, "cpu")(line, beam_size=1).text for path in (run, again)]
    assert texts[0] == texts[1]


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
