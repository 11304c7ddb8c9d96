"""Calls as a person makes them in the first hour: meant as they are, or answered in a line."""

from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.tiny_run import reversal_pairs, write_tsv
from transduce.cli.inputs import LineReader
from transduce.cli.main import main
from transduce.errors import DataError, SettingError
from transduce.making.data import Plan, Request
from transduce.runs.arguments import check_texts


def test_files_of_make_need_no_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["make", str(tmp_path / "pairs.tsv"), "--run", str(tmp_path / "run")]) == 2
    assert "pairs.tsv: no such file" in capsys.readouterr().err


def test_a_text_in_place_of_a_file_is_answered_with_the_way() -> None:
    with pytest.raises(DataError, match="hello world: no such file; for a text"):
        LineReader("hello world")
    with pytest.raises(DataError, match=r"^lines\.txt: "):
        LineReader("lines.txt")


class Table:
    """As of pandas and pyarrow."""

    columns = ("text",)

    def __iter__(self) -> Any:
        return iter(self.columns)


def test_a_table_is_no_list_of_texts() -> None:
    with pytest.raises(DataError, match="give a column of the table"):
        check_texts(Table())
    with pytest.raises(DataError, match="give its texts"):
        check_texts({"text": "a"})
    check_texts(["a"])


def test_more_minutes_go_on_with_a_finished_run(tmp_path: Path) -> None:
    plan = Plan(Request([], 30), trained=True, curve=[(1, 2.0)], gain=(1.0, 0.0, 2.0))
    assert plan.extended(60, tmp_path) == 30
    assert (plan.request.minutes, plan.trained, plan.curve, plan.gain) == (60, False, [], ())
    with pytest.raises(SettingError, match="has had 60; with --resume, give more"):
        plan.extended(60, tmp_path)


def test_validation_on_the_training_file_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_tsv(tmp_path / "pairs.tsv", reversal_pairs(60))
    copy = write_tsv(tmp_path / "copy.tsv", reversal_pairs(60))
    same, again = ({"kind": "tsv", "path": str(path)} for path in (data, copy))
    recipe = {
        "task": "translation",
        "model": {"preset": "tiny"},
        "data": {"train": same, "valid": again},
    }
    recipe["text"] = {"source": {"kind": "characters"}}
    recipe["training"] = {"steps": 1, "validate_every": 1}
    transduce.train(recipe, tmp_path / "run")
    assert "data.valid has the contents of data.train" in caplog.text
    caplog.clear()
    write_tsv(copy, [(target, source) for source, target in reversal_pairs(60)])  # of equal size
    transduce.train(recipe, tmp_path / "other")
    assert "data.valid has the contents" not in caplog.text


def test_labels_have_no_faults_of_translations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["good", "bad", "fine", "poor", "great", "dull", "slow", "kind"]
    texts = [f"{a} and {b} but {c} in the end" for a in words for b in words for c in words]
    rows = [f"{text}\t{('neg', 'pos')[len(text) % 2]}\n" for text in texts]
    (tmp_path / "labels.tsv").write_text("".join(rows))
    assert main(["doctor", str(tmp_path / "labels.tsv")]) == 0
    assert "examined" in capsys.readouterr().out


def test_the_beginning_of_an_option_suggests_the_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["translate", "runs/x", "--beam", "4"]) == SettingError.exit_code
    assert "Did you mean --beam-size?" in capsys.readouterr().err
    assert main(["translate", "runs/x", "--jsonlines"]) == SettingError.exit_code
    assert "Did you mean --jsonl?" in capsys.readouterr().err
