"""Classification is measured in the same way everywhere: validation, `evaluate`, `--against`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import transduce
from helpers.labelled_texts import sentences, settings
from helpers.tiny_run import write_tsv
from transduce.cli.main import main


def test_validation_measures_what_evaluate_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With labels that training never saw, of which each is one for itself, and blank texts."""
    data = write_tsv(tmp_path / "a.tsv", sentences(400))
    rows = [*sentences(40, seed=5), *[("the dog", f"new {i % 3}") for i in range(12)]]
    rows = [{"text": text, "label": label} for text, label in rows]
    rows += [{"text": " ", "label": rows[i]["label"]} for i in range(8)]
    valid = tmp_path / "valid.jsonl"
    valid.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    recipe = settings(data, f"data.valid={{kind = 'jsonl', path = '{valid}'}}")
    recipe["evaluation"] = {"metrics": ["accuracy", "macro-f1"]}
    run, outcome = transduce.train(recipe, tmp_path / "run")
    assert "8 valid texts are blank; they count as wrong" in caplog.text
    scores = transduce.load(run).evaluate("valid").scores
    for name in ("accuracy", "macro-f1"):
        assert scores[name] == pytest.approx(outcome.scores[name])


def test_a_run_is_no_better_than_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where texts have several lines too, which spaces in their place would change."""
    line_feed = "\n"
    rows = [{"text": f"a{line_feed * (i % 4)}b" * 3, "label": str(i % 4)} for i in range(200)]
    data = tmp_path / "a.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    section = {"train": {"kind": "jsonl", "path": str(data)}, "hold_out": 0.2}
    recipe = settings(data, "training.steps=60", data={**section, "valid": section["train"]})
    recipe["data"]["test"] = section["train"]
    run, _ = transduce.train(recipe, tmp_path / "run")
    assert main(["evaluate", str(run), "--against", str(run), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["accuracy"] > 90, "it must have learnt to count the line feeds"
    assert result["against"]["accuracy"]["difference"] == 0
