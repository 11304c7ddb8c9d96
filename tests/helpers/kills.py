"""Runs of every family, killed at chosen moments and taken up again until they are done."""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from helpers.ranks import ForkServer
from helpers.tiny_run import reversal_pairs, write_tsv
from transduce.settings.sections import merge_settings
from transduce.training.checkpoints import check_sums
from transduce.training.weight_files import checkpoints_of
from transduce.training.weights import read_tensors

STEPS = 24
POLL_SECONDS = 0.0002

Condition = Callable[[], bool]


def transformer(**changes: Any) -> dict[str, Any]:
    small = {"n_layers": 1, "n_heads": 2, "d_ff": 32, "dropout": 0.2, "norm_order": "pre"}
    return {**small, **changes}


def recipe(task: str, data: dict[str, Any], text: dict[str, Any], **sections: Any) -> Any:
    training = {
        "steps": STEPS,
        "validate_every": 4,
        "log_every": 1,
        "batch_tokens": 128,
        "schedule": {"kind": "constant", "peak": 3e-3},
        "threads": 1,
        "device": "cpu",
        **sections.pop("training", {}),
    }
    return {
        "task": task,
        "data": {"hold_out": 0.1, **data},
        "text": text,
        "training": training,
        **sections,
    }


PAIRS = {"train": {"kind": "tsv", "path": "pairs.tsv"}}
LINES = {"train": {"kind": "text", "path": "lines.txt", "documents": "blank-line"}}
CHARACTERS = {"kind": "characters"}
BPE = {"kind": "bpe", "size": 300}

FAMILIES: dict[str, dict[str, Any]] = {
    "translation": recipe(
        "translation",
        {
            **PAIRS,
            "train_weight": 0.5,
            "mix": [{"pairs": {"kind": "tsv", "path": "more.tsv"}, "weight": 1.5}],
        },
        {"source": BPE, "source_sampling": 0.2, "target_sampling": 0.2},
        model={"d_model": 16, "encoder": transformer(), "decoder": transformer()},
        training={"accumulate": 2, "ema": 0.9, "clip_norm": 1.0},
        evaluation={"validation_pairs": 0},
    ),
    "recurrent": recipe(
        "translation",
        PAIRS,
        {"source": CHARACTERS, "target": {"kind": "symbols"}},
        model={
            "d_model": 16,
            "tie": "two-way",
            "encoder": {"kind": "recurrent", "n_layers": 1, "dropout": 0.2},
            "decoder": {"kind": "recurrent", "n_layers": 1, "dropout": 0.2},
        },
        training={
            "average_last": 3,
            "schedule": {"kind": "cosine", "peak": 5e-3, "warmup_steps": 5},
            "optimizer": {"kind": "muon"},
        },
        evaluation={"validation_pairs": 4},
    ),
    "language model": recipe(
        "language-model",
        LINES,
        {"tokenizer": CHARACTERS, "block": 32},
        model={"d_model": 16, "decoder": transformer(positions="rotary")},
        training={"r_drop": 1.0, "keep_last": 1, "label_smoothing": 0.0, "threads": 2},
    ),
    "masked language model": recipe(
        "masked-language-model",
        LINES,
        {"tokenizer": {"kind": "bpe", "size": 280}, "max_length": 24},
        model={"d_model": 16, "encoder": transformer(positions="learned", max_positions=64)},
        masking={"whole_words": True},
        next_sentence=True,
        training={
            "accumulate": 3,
            "schedule": {"kind": "noam", "warmup_steps": 10},
            "optimizer": {"kind": "muon", "weight_decay": 0.1},
        },
    ),
    "classification": recipe(
        "classification",
        {"train": {"kind": "tsv", "path": "labelled.tsv"}},
        {"tokenizer": BPE, "token_dropout": 0.2, "sampling": 0.2, "max_length": 24},
        model={"d_model": 16, "encoder": transformer(), "pooling": "mean"},
        training={"ema": 0.8, "r_drop": 1.0, "optimizer": {"weight_decay": 0.1}},
    ),
}


def write_data(place: Path) -> None:
    """The files that the recipes read."""
    chance = random.Random(5)
    write_tsv(place / "pairs.tsv", reversal_pairs(250, longest=9))
    write_tsv(place / "more.tsv", reversal_pairs(200, longest=9, seed=1))
    words = ["red", "green", "small", "old", "house", "tree", "sees", "the", "a", "bird"]
    lines = [" ".join(chance.choices(words, k=chance.randint(2, 8))) for _ in range(400)]
    (place / "lines.txt").write_text("".join(f"{a}\n{b}\n\n" for a, b in itertools.pairwise(lines)))
    labelled = (f"{line}\t{'tree' if 'tree' in line else 'none'}\n" for line in lines)
    (place / "labelled.tsv").write_text("".join(labelled))


def write_family(place: Path, name: str, **training: Any) -> Path:
    """The recipe of a family, with its data beside it; each place has a cache of its own."""
    place.mkdir()
    write_data(place)
    settings = merge_settings(FAMILIES[name], {"training": training, "data": {"root": str(place)}})
    path = place / "recipe.toml"
    path.write_text(tomli_w.dumps(settings))
    return path


class Server(ForkServer):
    """Starts commands without the seconds that importing torch takes."""

    def start(self, errors: Path, *arguments: object) -> int:
        """The id of the new process; its stderr goes into `errors`."""
        files = {"out": os.devnull, "err": str(errors)}
        number = self.ask({"arguments": [*map(str, arguments)], **files})
        self.send({"wait": number})
        return number

    def ended(self) -> int | None:
        """The exit code, negative for a signal; None while the process runs."""
        ready, _, _ = select.select([self.process.stdout], [], [], POLL_SECONDS)
        return self.answer() if ready else None


@dataclass
class Process:
    """The real command, training with --resume, and its effects on its directory."""

    server: Server
    recipe: Path
    run: Path

    def __post_init__(self) -> None:
        self.begun = time.monotonic()
        self.errors = self.recipe.parent / "stderr"
        arguments = ("train", self.recipe, "--run", self.run, "--resume")
        self.number = self.server.start(self.errors, *arguments)

    def killed_at(self, condition: Condition) -> bool:
        """Kill it as soon as the condition holds; False where it ended before."""
        code = self.server.ended()
        while code is None and not condition():
            code = self.server.ended()
        if code is None:
            os.kill(self.number, signal.SIGKILL)
        while code is None:
            code = self.server.ended()
        message = self.errors.read_text()
        assert code in (0, -signal.SIGKILL), message
        assert "Traceback" not in message
        return code != 0

    def seconds(self, after: float) -> Condition:
        """So long after it began."""
        return lambda: time.monotonic() >= self.begun + after

    def logged(self, lines: int, after: float = 0.0) -> Condition:
        """A while after so many more lines of the log were written than there are now."""
        path = self.run / "metrics.jsonl"
        before = last_step(path)
        came: list[float] = []

        def condition() -> bool:
            if not came and last_step(path) >= before + lines:
                came.append(time.monotonic())
            return bool(came) and time.monotonic() >= came[0] + after

        return condition

    def appears(self, place: Path, ending: str, after: float = 0.0) -> Condition:
        """A while after a file or directory that ends so is there and was not before."""
        before = set(place.glob(f"*{ending}"))
        came: list[float] = []

        def condition() -> bool:
            if not came and set(place.glob(f"*{ending}")) - before:
                came.append(time.monotonic())
            return bool(came) and time.monotonic() >= came[0] + after

        return condition


def last_step(log: Path) -> int:
    try:
        lines = log.read_text().splitlines()
    except OSError:
        return 0
    return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)


Moment = Callable[[Process], Condition]


def moments(
    chance: random.Random, whole_seconds: float
) -> Iterator[Callable[[Process], Condition]]:
    """Without end: in turn a random time, a step, and the writing of each kind of file."""

    def at_time(process: Process) -> Condition:
        return process.seconds(chance.uniform(0, whole_seconds))

    def at_step(process: Process) -> Condition:
        return process.logged(chance.randint(1, STEPS // 3), chance.uniform(0, 0.03))

    def when(place: str, ending: str, within: float) -> Moment:
        def at_file(process: Process) -> Condition:
            directory = (process.run / place).resolve()
            return process.appears(directory, ending, chance.choice([0, within]) * chance.random())

        return at_file

    yield when("../.cache", ".[pu]*", 0.01)  # .partial or .unfinished
    for _ in itertools.count():
        yield when("checkpoints", "", 0.01)
        yield at_step
        yield at_time
        yield when(".", "weights.safetensors.tmp", 0.002)
        yield at_step
        yield when("checkpoints", ".old", 0.002)
        yield at_step
        yield when(".", ".tmp", 0.001)
        yield when("checkpoints", "", 0.03)


def check_whole(run: Path) -> None:
    """Every file present is complete."""
    for checkpoint in checkpoints_of(run):
        assert (checkpoint / "SHA256SUMS").is_file()
        check_sums(checkpoint)
    for file in run.glob("*.safetensors"):
        read_tensors(file)


def assert_same_run(run: Path, whole: Path) -> None:
    name = "weights.safetensors"
    assert (run / name).read_bytes() == (whole / name).read_bytes()
    kept = [path.name for path in checkpoints_of(whole)]
    assert [path.name for path in checkpoints_of(run)] == kept
    for file in (whole / "checkpoints" / kept[-1]).glob("*.safetensors"):
        result = run / "checkpoints" / kept[-1] / file.name
        assert result.read_bytes() == file.read_bytes(), file.name
    curves = []
    for path in (run, whole):
        lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
        curves.append([(line["kind"], line["step"], line["loss"]) for line in lines])
    assert curves[0] == curves[1]
    assert [step for kind, step, _ in curves[0] if kind == "train"] == list(range(1, STEPS + 1))
