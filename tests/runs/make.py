"""Makes the run directories that are kept here: one of each wiring that later versions must load.

    python tests/runs/make.py NAME [CONTEXT]

CONTEXT makes a recurrent translation model with a context of that kind, and nothing else.
They are made once for each format and never again: that files written long ago still give the
same answers is what they are for.  NAME becomes a directory beside this file, with `expected.json`
of what the runs said when they were made.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import transduce

HERE = Path(__file__).parent
KEPT = ("recipe.toml", "weights.safetensors", "README.md", "labels.json", "*tokenizer.*")
INPUTS = {
    "translation": ["dog", "a good hat", "", "Zürich"],
    "classification": ["a good film", "bad and sad", "?"],
}
STACK = {"n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.0}
TRAINING = {
    "steps": 300,
    "batch_tokens": 512,
    "validate_every": 300,
    "schedule": {"kind": "constant", "peak": 1e-2, "warmup_steps": 20},
    "device": "cpu",
    "threads": 1,
}


def some_texts(count: int) -> list[str]:
    """Texts of a few words."""
    chance = random.Random(0)
    words = ["good", "bad", "sad", "fine", "film", "dog", "hat", "and", "a", "the", "cat", "red"]
    return [" ".join(chance.choices(words, k=chance.randint(1, 4))) for _ in range(count)]


def stacks(context: str) -> dict[str, Any]:
    """Encoder and decoder: Transformers, or recurrent with a context of that kind."""
    if not context:
        return {"encoder": STACK, "decoder": STACK}
    recurrent = {"kind": "recurrent", "dropout": 0.0}
    return {
        "encoder": recurrent,
        "decoder": {**recurrent, "cell": "gru", "context": {"kind": context}},
    }


def settings(task: str, data: Path, context: str) -> dict[str, Any]:
    """A recipe that learns in seconds: words in reverse order, or whether one of them is good."""
    texts = some_texts(400)
    if task == "translation":
        rows = [(text, " ".join(reversed(text.split()))) for text in texts]
        text = {"source": {"kind": "bpe", "size": 290}}
        model = {"d_model": 16, "tie": "three-way", **stacks(context)}
    else:
        rows = [(text, "good" if "good" in text else "other") for text in texts]
        text = {"tokenizer": {"kind": "characters"}, "max_length": 64}
        model = {"d_model": 16, "encoder": STACK}
    data.write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    return {
        "task": task,
        "data": {"train": {"kind": "tsv", "path": data.name}, "root": str(data.parent)},
        "text": text,
        "model": model,
        "training": TRAINING,
    }


def make(name: str, context: str = "") -> None:
    """Train, keep what a run needs, note what it says."""
    home = HERE / name
    expected: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        for task in ["translation"] if context else INPUTS:
            inputs = INPUTS[task]
            recipe = settings(task, Path(directory) / f"{task}.tsv", context)
            run, _ = transduce.train(recipe, Path(directory) / task)
            (home / task).mkdir(parents=True)
            for pattern in KEPT:
                for file in run.glob(pattern):
                    shutil.copy(file, home / task / file.name)
            for file in ("recipe.toml", "README.md"):  # where it was made says nothing
                text = (home / task / file).read_text(encoding="utf-8")
                (home / task / file).write_text(text.replace(directory, "data"), encoding="utf-8")
            answers = transduce.load(home / task, "cpu").predict(inputs)
            expected[task] = [
                {"input": given, **answer.fields()}
                for given, answer in zip(inputs, answers, strict=True)
            ]
    text = json.dumps(expected, ensure_ascii=False, indent=1)
    (home / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    make(*sys.argv[1:])
