"""Training of the language model: its recipes, its data, what it learns."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.tiny_run import stack, training
from transduce.errors import DataError, SettingError
from transduce.settings.sections import apply_overrides
from transduce.tasks.language_model.task import LanguageModelRecipe, read_documents_of

# --- recipe and data -----------------------------------------------------------------------------


def settings(data: Path, *overrides: str, **train: Any) -> dict[str, Any]:
    given = {
        "task": "language-model",
        "data": {
            "root": str(data),
            "train": {"kind": "text", "path": "a.txt", **train},
            "hold_out": 0.1,
        },
        "text": {"tokenizer": {"kind": "characters"}, "block": 32},
        "model": {"d_model": 32, "decoder": stack(d_ff=64, positions="rotary", dropout=0.1)},
        "training": training(
            8, 128, 5e-3, validate_every=4, log_every=1,
            label_smoothing=0.0, optimizer={"epsilon": 1e-8},
        ),
    }  # fmt: skip
    return apply_overrides(given, overrides)


def test_recipes_that_cannot_be(tmp_path: Path) -> None:
    for override, message in [
        ("training.batch_tokens=16", "training.batch_tokens = 16 is less than one row"),
        ("training.select_by=perplexty", "select_by = 'perplexty', but validation measures"),
        ("evaluation.stride=33", "evaluation.stride = 33 would skip tokens"),
        ("decoding.stop_strings=['']", "decoding.stop_strings"),
        ("decoding.max_tokens=0", "decoding.max_tokens"),
        ("data.train.kind='tsv'", "data.train.kind is 'tsv'"),
    ]:
        with pytest.raises(SettingError, match=message):
            LanguageModelRecipe.parse(settings(tmp_path, override), "recipe")
    with pytest.raises(SettingError, match=r"text.block = 32 exceeds the 16 learned positions"):
        learned = "model.decoder.positions='learned'", "model.decoder.max_positions=16"
        LanguageModelRecipe.parse(settings(tmp_path, *learned), "recipe")


def test_a_whole_file_is_split_at_its_end(tmp_path: Path) -> None:
    text = "".join(f"{i}\n" for i in range(1000))
    (tmp_path / "a.txt").write_text(text)
    data = LanguageModelRecipe.parse(settings(tmp_path), "recipe").data
    (train,), (valid,) = read_documents_of(data, "train"), read_documents_of(data, "valid")
    assert train + valid == text and len(train) == int(len(text) * 0.9)
    with pytest.raises(DataError, match=r"no test data.*--split valid"):
        list(read_documents_of(data, "test"))
    own = "data.valid={kind='text',path='a.txt'}"
    data = LanguageModelRecipe.parse(settings(tmp_path, own), "recipe").data
    assert list(read_documents_of(data, "train")) == list(read_documents_of(data, "valid"))


def test_lines_are_split_by_their_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {i}\n" for i in range(500)))
    data = LanguageModelRecipe.parse(settings(tmp_path, documents="line"), "recipe").data
    parts = [set(read_documents_of(data, split)) for split in ("train", "valid", "test")]
    assert sum(map(len, parts)) == 500 == len(set.union(*parts))
    assert min(map(len, parts)) > 20


def test_nothing_to_validate_with(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    recipe = settings(tmp_path, documents="line")
    with pytest.raises(DataError, match=r"holding out|no text"):
        transduce.train(recipe, tmp_path / "runs" / "r")


# --- training ------------------------------------------------------------------------------------


def cycle_text(n: int, seed: int = 0) -> str:
    """Each letter is followed by one of two, evenly: an entropy of log 2 nats a letter."""
    chance = random.Random(seed)
    letters, text = "abcdefg\n", "a"
    while len(text) < n:
        at = letters.index(text[-1])
        text += letters[(at + chance.choice((1, 3))) % 8]
    return text


@pytest.mark.system
def test_learns_a_language_of_known_entropy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.txt").write_text(cycle_text(12_000))
    overrides = ["training.steps=250", "training.validate_every=250", "training.batch_tokens=256"]
    path, outcome = transduce.train(settings(tmp_path, *overrides), tmp_path / "runs" / "r")
    assert math.log(2) - 0.02 < outcome.scores["loss"] < math.log(2) + 0.05
    assert outcome.scores["perplexity"] == pytest.approx(math.exp(outcome.scores["loss"]))
    run = transduce.load(path)
    valid = run.evaluate("valid")
    assert valid.scores["loss"] == pytest.approx(outcome.scores["loss"], abs=1e-4)
    assert valid.hypotheses == ()
    given = run.evaluate(examples=[(cycle_text(500, 7), cycle_text(20, 8))])
    assert given.scores["perplexity"] < 2.4
    assert "unknown" not in caplog.text
    run.evaluate(examples=[("abcd?", "ef!")])
    assert "2 of 10 tokens are unknown; bits_per_byte excludes" in caplog.text
    (found,) = run.predict(["abcdef"])
    letters = "abcdefg\n"
    steps = [
        (letters.index(b) - letters.index(a)) % 8
        for a, b in zip("f" + found.continuation, found.continuation, strict=False)
    ]
    assert len(steps) == 256 and sum(step in (1, 3) for step in steps) > 240


@pytest.mark.parametrize("setting", ["shortlist=true", "coverage_penalty=0.2"])
def test_settings_of_translation_alone(tmp_path: Path, setting: str) -> None:
    (tmp_path / "a.txt").write_text(cycle_text(2500))
    given = settings(tmp_path, f"decoding.{setting}")
    with pytest.raises(
        SettingError, match=rf"decoding\.{setting.split('=')[0]} applies only to translat"
    ):
        transduce.train(given, tmp_path / "runs" / "r")


@pytest.mark.parametrize("stack", [{"kind": "recurrent", "cell": "gru"}, {"kind": "bytenet"}])
def test_other_stacks_train_generate_and_are_explained(
    tmp_path: Path, stack: dict[str, Any]
) -> None:
    (tmp_path / "a.txt").write_text(cycle_text(2_000))
    recipe = settings(tmp_path)
    recipe["model"]["decoder"] = stack
    path, outcome = transduce.train(recipe, tmp_path / "runs" / "r")
    run = transduce.load(path)
    assert run.evaluate("valid").scores["loss"] == pytest.approx(outcome.scores["loss"], abs=1e-4)
    (found,) = run.predict(["abc"])
    assert found.continuation
    explained = run.explain("abc")
    assert explained.answer == found.text
    assert explained.stacks["decoder"].kind == stack["kind"]


def test_fine_tuning_starts_where_the_other_run_ended(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(cycle_text(2500))
    base, outcome = transduce.train(
        settings(tmp_path, "training.steps=60", "training.validate_every=60"),
        tmp_path / "runs" / "a",
    )
    tuned = settings(tmp_path, f"fine_tune.run='{base}'", "training.steps=1")
    del tuned["model"]
    path, after = transduce.train(tuned, tmp_path / "runs" / "b")
    assert after.scores["loss"] < outcome.scores["loss"] + 0.1
    assert (path / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()


def test_every_line_end_is_a_token(tmp_path: Path) -> None:
    for i, name in enumerate("ab"):
        (tmp_path / f"{name}.txt").write_bytes(f"{name} line {i}\r\n".encode())
    files = "data.train.path=['a.txt','b.txt']", "data.valid={kind='text',path='a.txt'}"
    recipe = settings(tmp_path, *files, "training.steps=1")
    path, _ = transduce.train(recipe, tmp_path / "runs" / "r")
    tokenizer = transduce.load(path).predictor.tokenizer
    assert tokenizer.decode(tokenizer.encode("a\r\n")) == "a\r\n"
