"""A tiny task, reversing short strings of letters, and runs that learn it in seconds."""

import gzip
import json
import random
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from transduce.errors import SettingError
from transduce.settings.sections import apply_overrides, to_toml
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.tasks.translation.training import (
    TranslationTraining,
    encoded_pairs,
    new_translator,
    vocabularies,
)
from transduce.training.log import TrainingLog
from transduce.training.trainer import Outcome
from transduce.training.weight_files import checkpoints_of

Pair = tuple[str, str]
ROUNDS = 10


def reversal_pairs(
    n: int, letters: str = "abcde", shortest: int = 2, longest: int = 6, seed: int = 0
) -> list[Pair]:
    """`n` different strings, each with its letters in reverse order as symbols."""
    generator = random.Random(seed)
    words: dict[str, None] = {}
    while len(words) < n:
        length = generator.randint(shortest, longest)
        words["".join(generator.choice(letters) for _ in range(length))] = None
    return [(word, " ".join(reversed(word))) for word in words]


def write_tsv(path: Path, rows: Iterable[tuple[str, ...]]) -> Path:
    """The rows as a tab-separated file."""
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


def stack(**changes: Any) -> dict[str, Any]:
    """Settings of one tiny stack."""
    small = {"n_layers": 1, "n_heads": 2, "d_ff": 32, "norm_order": "pre", "dropout": 0.0}
    return {**small, **changes}


def training(
    steps: int, batch_tokens: int, peak: float, warmup: int = 0, **changes: Any
) -> dict[str, Any]:
    """Settings of a training on the CPU at a constant learning rate, validated at its end."""
    schedule = {"kind": "constant", "peak": peak}
    small = {"steps": steps, "batch_tokens": batch_tokens, "validate_every": steps}
    schedule |= {"warmup_steps": warmup} if warmup else {}
    return {**small, "schedule": schedule, "device": "cpu", **changes}


def tiny_settings(data: Path, *overrides: str) -> dict[str, Any]:
    """Settings of a recipe for the tab-separated pairs in `data`, with `a.b=value` applied."""
    settings = {
        "task": "translation",
        "data": {"train": {"kind": "tsv", "path": str(data)}, "hold_out": 0.1},
        "text": {"source": {"kind": "characters"}, "target": {"kind": "symbols"}},
        "model": {"d_model": 16, "tie": "two-way", "encoder": stack(), "decoder": stack()},
        "training": training(12, 256, 3e-3, validate_every=6, log_every=1),
        "evaluation": {"validation_pairs": 8},
    }
    return apply_overrides(settings, overrides)


def write_tiny(directory: Path, *overrides: str) -> Path:
    """A TOML file of such a recipe, for pairs that are beside it."""
    data = write_tsv(directory / "a.tsv", reversal_pairs(60))
    file = directory / "tiny.toml"
    file.write_text(to_toml(tiny_settings(data, *overrides)), encoding="utf-8")
    return file


def tiny_recipe(data: Path, *overrides: str) -> TranslationRecipe:
    """The same settings as a recipe."""
    return TranslationRecipe.parse(tiny_settings(data, *overrides), "recipe")


def train_tiny(
    data: Path, run: Path, *overrides: str, resume: bool = False
) -> tuple[Path, Outcome]:
    """Train from the tiny settings into `run`."""
    return transduce.train(tiny_settings(data, *overrides), run, resume=resume)


def taught_run(
    settings: dict[str, Any], directory: Path, learnt: Callable[[transduce.Run], bool]
) -> transduce.Run:
    """A run trained by the steps of its settings again and again until a property holds."""
    section = settings["training"]
    for i in range(ROUNDS):
        longer = {**settings, "training": {**section, "steps": section["steps"] * (i + 1)}}
        run = transduce.load(transduce.train(longer, directory, resume=i > 0)[0], "cpu")
        if learnt(run):
            return run
    raise AssertionError(f"not learnt in {section['steps'] * ROUNDS} steps")


def tiny_task(data: Path, directory: Path, *overrides: str) -> TranslationTraining:
    """Arguments of the training loop for the tiny settings; tokenizers are in `directory`."""
    recipe = tiny_recipe(data, *overrides)
    torch.manual_seed(recipe.seed)
    directory.mkdir(parents=True, exist_ok=True)
    source, target = vocabularies(recipe, directory)
    encoded = encoded_pairs(recipe, source, target, directory / ".cache")
    return TranslationTraining(new_translator(recipe, source, target), encoded)


def records(run: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl` of one kind, "train" or "validation"."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def write_jsonl(path: Path, rows: Iterable[object]) -> Path:
    """The rows as lines of JSON, compressed where the name ends in .gz."""
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def steps_of(path: Path) -> list[int]:
    """Steps of the checkpoints of a run."""
    return [int(checkpoint.name[5:]) for checkpoint in checkpoints_of(path)]


def interrupt_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Have a SIGTERM arrive during that step."""
    show = TrainingLog.training

    def show_and_signal(log: TrainingLog, record: Any, *rest: float) -> None:
        show(log, record, *rest)
        if record["step"] == step:
            signal.raise_signal(signal.SIGTERM)

    patch.setattr(TrainingLog, "training", show_and_signal)


def recipe(*overrides: str) -> TranslationRecipe:
    """The recipe of a tiny run with some settings changed."""
    return TranslationRecipe.parse(tiny_settings(Path("pairs.tsv"), *overrides), "r.toml")


def recipe_refusal(*overrides: str) -> str:
    """The one line that refuses some settings."""
    with pytest.raises(SettingError) as caught:
        recipe(*overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)
