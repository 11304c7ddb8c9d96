"""Question answering from the command line: train, predict, evaluate, info, and mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done
from helpers.tiny_run import write_jsonl

RECIPE = """
task = "question-answering"
[data]
root = "{root}"
hold_out = 0.2
[data.train]
kind = "jsonl"
path = "questions.jsonl"
[text]
tokenizer = {{ kind = "characters" }}
max_length = 48
stride = 8
max_question = 8
[model]
d_model = 16
segments = true
encoder = {{ n_layers = 1, n_heads = 2, d_ff = 32, dropout = 0.0 }}
[training]
steps = 6
batch_tokens = 256
schedule = {{ kind = "constant", peak = 3e-3, warmup_steps = 2 }}
validate_every = 3
log_every = 3
threads = 1
device = "cpu"
[evaluation]
language = "en"
"""
CONTEXT = "Anna  lives in Rome,\nBert in Łódź 😀, and Carl in 北京 since 1999."
Here = Callable[..., Done]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("questions")
    rows = [
        {
            "id": str(i),
            "title": f"t{i}",
            "context": f"{CONTEXT} {i}",
            "question": f"who {i}?",
            "answers": [{"text": name, "answer_start": 0}],
        }
        for i, name in enumerate(["Anna", "Bert", "Carl"] * 10)
    ]
    write_jsonl(directory / "questions.jsonl", rows)
    path = directory / "recipe.toml"
    path.write_text(RECIPE.format(root=directory), encoding="utf-8")
    return path


@pytest.fixture
def run(recipe: Path, here: Here) -> Path:
    path = recipe.parent / "runs" / "names"
    if not path.exists():
        trained = here("train", recipe, "--run", path)
        assert trained.code == 0, trained.err
        assert trained.lines[-1] == str(path)
    return path


def test_lines_of_questions_and_passages(run: Path, here: Here, tmp_path: Path) -> None:
    one_line = CONTEXT.replace("\n", " ")
    given = tmp_path / "given.txt"
    given.write_text(f"who?\t{one_line}\n\nwhere?\t{one_line}\twith a tab\n", encoding="utf-8")
    done = here("predict", run, given)
    assert done.code == 0, done.err
    assert len(done.lines) == 3 and done.lines[1] == ""
    assert done.lines[0] and done.lines[0] in one_line


def test_records_come_back_with_the_answer_in_them(run: Path, here: Here, tmp_path: Path) -> None:
    given = tmp_path / "given.jsonl"
    record = {"question": "who?", "context": CONTEXT, "mine": [1]}
    given.write_text(json.dumps(record) + "\n", encoding="utf-8")
    done = here("predict", run, given, "--jsonl")
    assert done.code == 0, done.err
    (found,) = map(json.loads, done.lines)
    assert {name: found[name] for name in record} == record
    assert set(found) == {*record, "answer", "start", "end", "score", "probability"}
    assert CONTEXT[found["start"] : found["end"]] == found["answer"] != ""
    assert 0 < found["probability"] <= 1


def test_evaluate_prints_exact_match_and_f1(run: Path, here: Here, tmp_path: Path) -> None:
    outputs = tmp_path / "outputs.txt"
    done = here("evaluate", run, "--json", "--output", outputs)
    assert done.code == 0, done.err
    scores = json.loads(done.lines[0])
    assert 0 <= scores["exact_match"] <= scores["f1"] <= 100
    assert scores["f1_signature"] == "convention:squad"
    assert len(outputs.read_text(encoding="utf-8").splitlines()) == scores["items"]
    against = here("evaluate", run, "--json", "--against", run)
    assert json.loads(against.lines[0])["against"]["f1"]["difference"] == 0


def test_a_field_that_is_missing_is_named_with_its_line(
    recipe: Path, here: Here, tmp_path: Path
) -> None:
    rows = recipe.with_name("questions.jsonl").read_text(encoding="utf-8").splitlines()
    rows[4] = rows[4].replace('"question"', '"qestion"')
    (tmp_path / "questions.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    root = f"data.root={tmp_path}"
    complaint = here("train", recipe, "--run", tmp_path / "run", "--set", root).complaint
    assert "questions.jsonl: line 5 has no field 'question'; did you mean 'qestion'?" in complaint


def test_the_lines_before_it_are_answered(run: Path, here: Here, tmp_path: Path) -> None:
    lines = "who?\tAnna is here\n\nwho?\n", "who?\tAnna is here\n\n"
    for name, text in zip(("all", "before"), lines, strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = here("predict", run, tmp_path / "all")
    assert done.complaint.startswith(
        f"{tmp_path / 'all'}: line 3: expected tab-separated question and context"
    )
    assert done.lines == here("predict", run, tmp_path / "before").lines and len(done.lines) == 2
