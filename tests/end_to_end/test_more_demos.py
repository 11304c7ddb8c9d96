"""`transduce demo copy` and `transduce demo --language zh`: data, story, results, page."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transduce import DataError
from transduce.cli import demo as demo_module
from transduce.cli.demo import (
    COPY,
    COPY_LINES,
    DEMOS,
    EN,
    ZH,
    Demo,
    demo_recipe,
    lines_to_copy,
    read_phrases,
)
from transduce.cli.main import main
from transduce.recipes import parse_recipe
from transduce.text.languages import canonical, name_of

SHORT = ("--minutes", "0.01")


def test_a_model_that_has_hardly_learnt_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pypinyin", None)
    assert main(["demo", "copy", "--json", *SHORT]) == 1
    out, output = capsys.readouterr()
    figures = json.loads(out)
    assert figures["run"] == "runs/demo-copy" and figures["test_lines"] > 300
    assert figures["accuracy"] < 50 and figures["steps"] < figures["planned_steps"] == 300
    assert (
        f"hardly learnt, so its attention is not shown: {figures['steps']} of 300 steps" in output
    )
    assert output.endswith("    transduce demo copy --minutes 10 --again\n")
    assert "copied exactly" in output and "  ->  " not in output.partition("Test on")[2]
    run = tmp_path / "runs" / "demo-copy"
    assert not (run / "explain.html").exists()
    weights = (run / "weights.safetensors").stat().st_mtime_ns

    assert main(["demo", "copy"]) == 1
    out, _ = capsys.readouterr()
    assert "Using the trained model" in out and out.endswith("copy --minutes 10 --again\n")
    assert (run / "weights.safetensors").stat().st_mtime_ns == weights

    assert main(["demo", "en", "--run", "runs/demo-copy"]) == 1  # nor is another demo lost
    assert "runs/demo-copy is not a run of this demo" in capsys.readouterr().err
    assert (run / "weights.safetensors").stat().st_mtime_ns == weights

    assert main(["demo", "copy", "--again", "--minutes", "0.02"]) == 1
    assert (run / "weights.safetensors").stat().st_mtime_ns != weights
    assert main(["demo", "copy", "--run", "my run", "--again", *SHORT]) == 1
    assert "demo copy --run 'my run' --minutes 10 --again" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_copying_is_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "copy", "--json"]) == 0
    out, output = capsys.readouterr()
    assert json.loads(out)["accuracy"] > 99
    for line in COPY.examples:
        assert f"\n{line}  ->  {line}\n" in output
    run = tmp_path / "runs" / "demo-copy"
    assert "3 1 4 1 5 9 2 6 5 3" in (run / "explain.html").read_text(encoding="utf-8")
    weights = (run / "weights.safetensors").stat().st_mtime_ns
    assert main(["demo", "copy"]) == 0
    out, _ = capsys.readouterr()
    assert "--again" in out and str(Path("runs/demo-copy/explain.html")) in out
    assert (run / "weights.safetensors").stat().st_mtime_ns == weights


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_pinyin_is_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fifth of the steps, whatever the machine."""
    pytest.importorskip("pypinyin", reason="the phrases come with the extra 'demo'")

    def shorter(demo: Demo, data: Path, minutes: float | None) -> dict[str, Any]:
        settings = demo_recipe(demo, data, minutes)
        settings["training"] |= {"steps": 600, "minutes": 1000.0}
        return settings

    monkeypatch.setattr(demo_module, "demo_recipe", shorter)
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "zh", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > ZH.floor


def test_story_in_chinese(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pypinyin", reason="the phrases come with the extra 'demo'")
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--language", "zh", *SHORT]) == 1
    output, _ = capsys.readouterr()
    assert "模型还没有学会，所以不展示注意力：只训练了 " in output
    assert output.endswith("transduce demo zh --minutes 10 --again\n")
    assert "“乐”看“" not in output and not (tmp_path / "runs" / "demo-zh" / "explain.html").exists()

    monkeypatch.setitem(DEMOS, "zh", replace(ZH, floor=0))
    assert main(["demo", "zh"]) == 0
    output, _ = capsys.readouterr()
    page = tmp_path / "runs" / "demo-zh" / "explain.html"
    assert f"{page.as_uri()}#lang=zh" in output
    assert "音乐课" in page.read_text(encoding="utf-8")
    assert "整条全对的词语" in output and "“乐”看“" in output
    commands = [line for line in output.splitlines() if line.isascii() and "transduce" in line]
    assert commands == []  # all that is said, even beside a command, is Chinese

    assert main(["demo", "zh", "--json"]) == 0
    out, output = capsys.readouterr()
    assert set(json.loads(out)) == {
        *("accuracy", "per", "train_seconds", "test_phrases", "run", "steps", "planned_steps")
    }
    assert "已训练好" in output


def test_demos_name_their_languages_for_servers(tmp_path: Path) -> None:
    pairs = {
        name: parse_recipe(demo_recipe(DEMOS[name], tmp_path, None), name).languages  # type: ignore[attr-defined]
        for name in ("en", "zh")
    }
    assert (pairs["en"].source, pairs["en"].target) == ("en", "en-x-arpabet")
    assert (pairs["zh"].source, pairs["zh"].target) == ("zh", "zh-Latn-pinyin")
    for codes in pairs.values():
        assert name_of(canonical(codes.target)) != codes.target


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
