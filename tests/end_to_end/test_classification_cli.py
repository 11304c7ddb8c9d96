"""A classifier on the command line: trained on a table, asked about lines and records."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.command_line import Done, transduce

Here = Callable[..., Done]

RECIPE = """
task = "classification"
[data]
root = "{root}"
[data.train]
kind = "tsv"
path = "train.tsv"
text = "review"
{second}label = "verdict"
[data.test]
kind = "tsv"
path = "test.tsv"
text = "review"
{second}label = "verdict"
[text]
tokenizer = {{ kind = "characters" }}
max_length = 48
[model]
d_model = 24
pooling = "max"
encoder = {{ kind = "text-cnn", widths = [2, 3], dropout = 0.0 }}
[training]
steps = 80
batch_tokens = 512
schedule = {{ kind = "constant", peak = 1e-2 }}
validate_every = 40
select_by = "accuracy"
threads = 1
device = "cpu"
"""


def reviews(n: int, seed: int) -> str:
    """A table of reviews, each with a word that gives the verdict away."""
    chance = random.Random(seed)
    lines = ["verdict\treview\treply"]
    for _ in range(n):
        good = chance.random() < 0.5
        words = chance.choices(["it", "was", "the", "room", "so", "and"], k=4)
        words.insert(chance.randint(0, 4), chance.choice(["fine", "nice"] if good else ["bad"]))
        lines.append(f"{'good' if good else 'poor'}\t{' '.join(words)}\tthanks")
    return "\n".join(lines) + "\n"


def write(directory: Path, second: str = "") -> Path:
    (directory / "train.tsv").write_text(reviews(300, 1), encoding="utf-8")
    (directory / "test.tsv").write_text(reviews(40, 2), encoding="utf-8")
    recipe = directory / "reviews.toml"
    recipe.write_text(RECIPE.format(root=directory, second=second), encoding="utf-8")
    return recipe


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("reviews")
    done = transduce("train", write(directory), "--run", directory / "run")
    assert done.code == 0, done.err
    assert done.lines == [str(directory / "run")]
    assert " texts/s  " in done.err  # and not tokens
    return directory / "run"


def test_a_line_gives_a_label(classifier: Path) -> None:
    lines = "the room was nice\n\nit was bad\n   \n好\n"
    done = transduce("predict", classifier, stdin=lines.encode())
    assert done.code == 0, done.err
    assert done.lines[:4] == ["good", "", "poor", ""]
    assert done.lines[4] in ("good", "poor") and len(done.lines) == 5


def test_evaluate(classifier: Path, tmp_path: Path, here: Here) -> None:
    done = here("evaluate", classifier, "--output", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    scores = json.loads(done.lines[0])
    assert scores["items"] == 40
    assert scores["accuracy"] > 95
    answers = (tmp_path / "out").read_text().split()
    assert set(answers) == {"good", "poor"} and len(answers) == 40
    done = here("evaluate", classifier, "--against", tmp_path / "out")
    assert done.code == 0, done.err
    assert "accuracy" in done.lines[0] and "+0.00" in done.lines[-1]


def test_pairs(tmp_path: Path, here: Here) -> None:
    recipe = write(tmp_path, second='second = "reply"\n')
    done = here("train", recipe, "--run", tmp_path / "run", "--set", "training.steps=20")
    assert done.code == 0, done.err
    file = tmp_path / "in"
    file.write_text("so nice\tthanks\n\nso bad\tno\n")
    done = here("predict", tmp_path / "run", file)
    assert done.code == 0, done.err
    assert len(done.lines) == 3 and done.lines[1] == "" and done.lines[0] in ("good", "poor")
    file.write_text("one text only\n")
    assert (
        "expected tab-separated text and second"
        in here("predict", tmp_path / "run", file).complaint
    )
