"""Packed batches of every task: the losses and gradients of padded ones, and no look at values."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import transduce
from helpers import labelled_images, labelled_texts
from helpers.gpu import Reads
from helpers.pictures import squares, stripes, write_folder, write_table
from helpers.tiny_run import records, stack, training, write_tsv
from helpers.tunes import recognition_recipe, write_tunes
from transduce.data.batches import DataState
from transduce.recipes import as_recipe
from transduce.tasks.table import TASKS
from transduce.training import step
from transduce.training.step import GraphedStep, OptimizerStep, compile_stacks, make_step

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def sides(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    """The recipe with other positions and another order of norms in some stacks."""
    for name in names:
        model = settings["model"]
        for part in name.split(".")[:-1]:
            model = model[part]
        model[name.split(".")[-1]] = {
            **model[name.split(".")[-1]], "positions": "rotary", "norm_order": "post"
        }  # fmt: skip
    return settings


def texts(directory: Path) -> list[tuple[str, str]]:
    return labelled_texts.sentences(120)


def classification(directory: Path, pooling: str = "mean", **changes: Any) -> dict[str, Any]:
    file = write_tsv(directory / "a.tsv", texts(directory))
    recipe = labelled_texts.settings(file, "training.label_smoothing=0.1")
    recipe["model"] |= {"pooling": pooling, "segments": pooling == "first", "pooler": True}
    recipe["text"] |= {"token_dropout": 0.2}
    recipe["training"] |= {"r_drop": 0.0, **changes}
    recipe["head"] = {"dropout": 0.1 if "r_drop" in changes else 0.0}
    return recipe


def embedding(directory: Path) -> dict[str, Any]:
    rows = texts(directory)
    pairs = [(a, b) for (a, _), (b, _) in zip(rows[::2], rows[1::2], strict=True)]
    recipe = labelled_texts.settings(write_tsv(directory / "a.tsv", pairs))
    recipe["task"] = "embedding"
    recipe["data"]["train"] |= {"second": 1}
    return recipe


def questions(directory: Path) -> dict[str, Any]:
    rows = []
    for i, (text, _) in enumerate(texts(directory)):
        first = text.split()[0]
        answers = [{"text": first, "answer_start": 0}]
        rows.append({"id": str(i), "context": text, "question": "first word", "answers": answers})
    file = directory / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "task": "question-answering",
        "data": {"train": {"kind": "jsonl", "path": str(file)}, "hold_out": 0.1},
        "text": {
            "max_length": 32,
            "stride": 8,
            "max_question": 4,
            "tokenizer": {"kind": "symbols"},
        },
        "model": {"d_model": 16, "encoder": stack(positions="rotary"), "segments": True},
        "training": training(4, 96, 5e-3, label_smoothing=0.1),
    }


def next_sentences(directory: Path) -> dict[str, Any]:
    lines = [text for text, _ in texts(directory)]
    documents = ["\n".join(lines[i : i + 4]) for i in range(0, len(lines), 4)]
    (directory / "a.txt").write_text("\n\n".join(documents) + "\n")
    train = {"kind": "text", "path": str(directory / "a.txt"), "documents": "blank-line"}
    return {
        "task": "masked-language-model",
        "data": {"train": train, "hold_out": 0.1},
        "text": {"max_length": 32, "tokenizer": {"kind": "symbols"}},
        "model": {"d_model": 16, "encoder": stack(positions="rotary"), "segments": True},
        "next_sentence": True,
        "training": training(4, 256, 5e-3),
    }


def images(directory: Path) -> dict[str, Any]:
    more = "augmentation.flip=true", "augmentation.shift=1"
    return labelled_images.settings(write_folder(directory / "a", *stripes(70)), *more)


def captions(directory: Path) -> dict[str, Any]:
    vision = {"d_model": 16, "patch_size": 5, "class_token": True}
    vision["encoder"] = stack(positions="learned")
    return {
        "task": "captioning",
        "data": {"train": write_table(directory / "a", *squares(70)), "hold_out": 0.1},
        "image": {"size": 15},
        "augmentation": {"cutout": 3},
        "text": {"tokenizer": {"kind": "symbols"}, "max_length": 16},
        "model": {"vision": vision, "decoder": stack(positions="rotary", norm_order="post")},
        "training": training(4, 100, 5e-3, label_smoothing=0.1),
    }


def speech(directory: Path, **changes: Any) -> dict[str, Any]:
    recipe = recognition_recipe(write_tunes(directory / "tunes", 40), 4)
    recipe["model"]["front_end"] |= changes
    return recipe


RECIPES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "classification, mean": classification,
    "classification, first, post-norm": lambda path: sides(
        classification(path, "first"), "encoder"
    ),
    "classification, maximum, R-Drop": partial(classification, pooling="max", r_drop=1.0),
    "embedding": embedding,
    "embedding, post-norm": lambda path: sides(embedding(path), "encoder"),
    "question answering": questions,
    "question answering, post-norm": lambda path: sides(questions(path), "encoder"),
    "next sentences": next_sentences,
    "image classification": images,
    "captions": captions,
    "speech": speech,
    "speech, three narrow convolutions, post-norm": lambda path: sides(
        speech(path, n_layers=3, width=3), "encoder", "decoder"
    ),
    "speech, a wide convolution": partial(speech, n_layers=1, width=9),
}


def task_of(recipe: dict[str, Any], run: Path) -> Any:
    """Training task of a recipe, without dropout."""
    parsed, _ = as_recipe(recipe, ())
    run.mkdir()
    torch.manual_seed(3)
    task = TASKS[parsed.task].prepare(parsed, run)
    for module in task.model.modules():
        if hasattr(module, "p"):
            module.p = 0.0
    return task


def first_batches(task: Any, n: int = 4) -> list[Any]:
    return [batch for batch, _ in itertools.islice(task.batches.iterate(DataState()), n)]


def passed(task: Any, batch: Any, packs: bool) -> list[Tensor]:
    """Loss, likelihood, gradients."""
    torch.manual_seed(7)  # the same tokens are masked, the same images flipped
    sums = task.packed_loss(task.pack(batch)) if packs else task.loss(batch)
    task.model.zero_grad()
    (sums.total / batch.target_tokens).backward()
    gradients = [p.grad.clone() for p in task.model.parameters() if p.grad is not None]
    return [sums.total.detach() / batch.target_tokens, sums.nll / batch.target_tokens, *gradients]


@pytest.mark.parametrize("name", RECIPES)
def test_losses_and_gradients(name: str, tmp_path: Path) -> None:
    task = task_of(RECIPES[name](tmp_path), tmp_path / "run")
    task.model.train()
    assert not task.padding_reason()
    shapes = set()
    for batch in first_batches(task):
        padded, packed = (passed(task, batch, packs) for packs in (False, True))
        for other, expected in zip(packed, padded, strict=True):
            torch.testing.assert_close(other, expected, **TOLERANCE)
        shapes.add(str([leaf.shape for leaf in tensors(task.pack(batch))]))
    assert len(shapes) == 1


def tensors(packed: Any) -> list[Tensor]:
    if isinstance(packed, tuple):
        return [leaf for part in packed for leaf in tensors(part)]
    return [packed] if isinstance(packed, Tensor) else []


@pytest.mark.parametrize("name", RECIPES)
def test_a_loss_reads_no_value(name: str, tmp_path: Path) -> None:
    task = task_of(RECIPES[name](tmp_path), tmp_path / "run")
    packed = task.pack(first_batches(task, 1)[0])
    with Reads() as reads:
        task.packed_loss(packed).total.backward()
    assert bool(reads.names) == task.waits, reads.names


@pytest.mark.system
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", [name for name in RECIPES if "post" not in name])
def test_a_loss_is_traced_whole_and_once(name: str, tmp_path: Path) -> None:
    task = task_of(RECIPES[name](tmp_path), tmp_path / "run")
    counter = CompileCounterWithBackend("aot_eager")
    torch._dynamo.reset()
    compiled, counts = task.packed_loss, []
    if task.waits:  # CTC is not traced
        compile_stacks(task.model, backend=counter, fullgraph=True, dynamic=False)
    else:
        compiled = torch.compile(compiled, backend=counter, fullgraph=True, dynamic=False)
    for batch in first_batches(task, 3):
        packed = task.pack(batch)._replace(target_tokens=0)
        with torch.compiler.set_stance("force_eager"):
            eager = task.packed_loss(packed).total
        torch.testing.assert_close(compiled(packed).total, eager, **TOLERANCE)
        counts.append(counter.frame_count)
    assert counts == [1 + task.waits] * 3, "the loss, or encoder and decoder"


@pytest.mark.parametrize("name", ["classification, mean", "captions", "speech"])
def test_trainings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Log and validation as of padded batches."""
    losses, kinds = [], []

    def made(*options: Any) -> OptimizerStep:
        kinds.append(make_step(*options))
        return kinds[-1]

    for run in ("padded", "packed"):
        (tmp_path / run).mkdir()
        recipe = RECIPES[name](tmp_path / run)
        transduce.train(recipe, tmp_path / run / "run")
        kinds_of_lines = "train", "validation"
        losses.append(
            [r["loss"] for kind in kinds_of_lines for r in records(tmp_path / run / "run", kind)]
        )
        monkeypatch.setattr(step, "packer_of", lambda task, config, log: task)
        monkeypatch.setattr("transduce.training.trainer.make_step", made)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    assert isinstance(kinds[0], GraphedStep) == (name != "speech"), "the kernel of CTC reads"
