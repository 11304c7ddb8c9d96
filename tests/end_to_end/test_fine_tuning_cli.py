"""Fine-tuning as its users meet it: train, adapt, merge, translate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from helpers.command_line import Done, some_words, transduce, write_recipe
from transduce.training.weights import read_tensors

Here = Callable[..., Done]

SHORT = ("training.steps=10", "training.validate_every=5")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of another kind, with a recipe that leaves model and text to the base run."""
    directory = tmp_path_factory.mktemp("other")
    pairs = [(word, word[::-1]) for word in dict.fromkeys(some_words(120, seed=9))]
    recipe = write_recipe(directory, "characters", pairs)
    text = recipe.read_text(encoding="utf-8")
    model, training = text.index("[text]"), text.index("[training]")
    recipe.write_text(text[:model] + text[training:], encoding="utf-8")
    return recipe


@pytest.fixture(scope="module")
def adapted(run: Path, other: Path) -> Path:
    """A run with an adapter, made by the real command."""
    directory = other.parent / "runs" / "adapted"
    options = [f"fine_tune.run={run}", "fine_tune.lora.rank=2", *SHORT]
    done = transduce("train", other, "--set", *options, "--run", directory)
    assert done.code == 0, done.err
    assert f"starting from {run}" in done.err
    return directory


def test_merge_and_translate(here: Here, run: Path, adapted: Path, tmp_path: Path) -> None:
    merged = tmp_path / "merged"
    assert here("merge", run, adapted, merged).lines == [str(merged)]
    words = tmp_path / "words.txt"
    words.write_text("".join(f"{word}\n" for word in some_words(20, seed=4)), encoding="utf-8")
    expected = here("translate", adapted, words)
    assert len(expected.lines) == 20
    assert here("translate", merged, words).lines == expected.lines
    one, other = (read_tensors(path / "weights.safetensors") for path in (merged, adapted))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert (merged / "recipe.toml").read_bytes() == (adapted / "recipe.toml").read_bytes()
    card = (merged / "README.md").read_text(encoding="utf-8")
    assert f"The run `{run.name}` with the adapter of `{adapted.name}`" in card
    output = json.loads(here("info", adapted, "--json").out)
    assert output["recipe"]["fine_tune"]["lora"]["rank"] == 2
    assert output["parameters"] == json.loads(here("info", merged, "--json").out)["parameters"]


def test_an_adapter_without_its_vocabulary_makes_no_run(
    here: Here, run: Path, adapted: Path, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    part.mkdir()
    for name in ("adapter.safetensors", "recipe.toml"):
        (part / name).write_bytes((adapted / name).read_bytes())
    assert "has no tokenizer files" in here("merge", run, part, tmp_path / "merged").complaint
    assert not (tmp_path / "merged").exists()
