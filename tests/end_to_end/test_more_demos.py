"""`transduce demo copy` and `transduce demo --language zh`: data, story, results, page."""

import json
import sys
from pathlib import Path

import pytest

from transduce import DataError
from transduce.cli.demo_data import COPY_LINES, lines_to_copy, read_phrases
from transduce.cli.demo_table import DEMOS, EN, ZH
from transduce.cli.main import main

SHORT = ("--minutes", "0.01")


def test_copying_needs_no_data_and_trains_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pypinyin", None)
    assert main(["demo", "copy", "--json", *SHORT]) == 0
    out, told = capsys.readouterr()
    figures = json.loads(out)
    assert set(figures) == {"accuracy", "train_seconds", "test_lines", "run"}
    assert figures["run"] == "runs/demo-copy"
    assert figures["test_lines"] > 300
    assert "copied exactly" in told
    assert "3 1 4 1 5 9 2 6 5 3  ->" in told
    run = tmp_path / "runs" / "demo-copy"
    assert "3 1 4 1 5 9 2 6 5 3" in (run / "explain.html").read_text(encoding="utf-8")
    weights = (run / "weights.safetensors").stat().st_mtime_ns

    assert main(["demo", "copy"]) == 0
    out, _ = capsys.readouterr()
    assert "--again" in out and str(Path("runs/demo-copy/explain.html")) in out
    assert (run / "weights.safetensors").stat().st_mtime_ns == weights

    assert main(["demo", "en", "--run", "runs/demo-copy"]) == 1  # nor is another demo lost
    assert "runs/demo-copy is not a run of this demo" in capsys.readouterr().err
    assert (run / "weights.safetensors").stat().st_mtime_ns == weights

    assert main(["demo", "copy", "--again", *SHORT]) == 0
    assert (run / "weights.safetensors").stat().st_mtime_ns != weights


def test_story_in_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pypinyin", reason="the phrases come with the extra 'demo'")
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--language", "zh", *SHORT]) == 0
    told, _ = capsys.readouterr()
    page = tmp_path / "runs" / "demo-zh" / "explain.html"
    assert f"{page.as_uri()}#lang=zh" in told
    assert "音乐课" in page.read_text(encoding="utf-8")
    assert "整条全对的词语" in told and "“乐”看“" in told
    commands = [line for line in told.splitlines() if line.isascii() and "transduce" in line]
    assert commands == []  # all that is said, even beside a command, is Chinese

    assert main(["demo", "zh", "--json"]) == 0
    out, told = capsys.readouterr()
    assert set(json.loads(out)) == {"accuracy", "per", "train_seconds", "test_phrases", "run"}
    assert "已训练好" in told


def test_missing_phrases_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pypinyin.phrases_dict", None)
    assert main(["demo", "zh"]) == DataError.exit_code
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "needs the extra 'demo'" in message
    assert not (tmp_path / "runs" / "demo-zh").exists()


def test_name_and_language_that_differ_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "copy", "--language", "zh"]) == 2
    assert "--language zh" in capsys.readouterr().err
    assert main(["demo", "klingon"]) == 2


def test_every_run_has_a_directory_of_its_own() -> None:
    assert len({demo.directory for demo in DEMOS.values()}) == len(DEMOS)
    assert EN.directory == "runs/demo"


def test_lines_to_copy_are_different_and_the_same_each_time() -> None:
    lines = list(lines_to_copy())
    assert lines == list(lines_to_copy())
    assert len(set(lines)) == COPY_LINES
    assert all(source == target for source, target in lines)


def test_phrases_have_a_syllable_for_each_character() -> None:
    pytest.importorskip("pypinyin", reason="the phrases come with the extra 'demo'")
    phrases = dict(read_phrases())
    assert len(phrases) > 40_000
    assert phrases["音乐"] == "yīn yuè" and phrases["快乐"] == "kuài lè"
    assert all(len(phrase) == len(spoken.split()) for phrase, spoken in phrases.items())
    assert not phrases.keys() & set(ZH.examples)
    assert all(set(example) & set(ZH.polyphones) for example in ZH.examples)
