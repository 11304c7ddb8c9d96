"""What every task promises: trained by its recipe, resumed, used and measured by the same commands.

A new task joins with one line in `CASES`.
"""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.answers import choices, close
from helpers.margins import steady
from helpers.pictures import SIZE, stripes, write_table
from helpers.tiny_run import (
    interrupt_at,
    reversal_pairs,
    stack,
    tiny_settings,
    write_jsonl,
    write_tsv,
)
from helpers.tunes import AUDIO, write_tunes
from transduce.cli import main as cli
from transduce.errors import SettingError
from transduce.explain.parts import KnockOut
from transduce.settings.sections import merge_settings, to_dict, to_toml
from transduce.tasks import TASKS
from transduce.tasks.recipe import Recipe, RootedData
from transduce.training.signals import InterruptedTraining
from transduce.training.weights import read_tensors

WORDS = ["amber", "birch", "cedar", "delta", "ember", "flint"]
ENCODER = {"d_model": 16, "encoder": stack(positions="rotary", dropout=0.1)}
DECODER = {"d_model": 16, "decoder": stack(positions="rotary", dropout=0.1)}
PICTURES = {"d_model": 16, "patch_size": 4, "encoder": stack(positions="learned", dropout=0.1)}
TEXT = {"kind": "characters"}
TRAINING = {
    "steps": 8,
    "batch_tokens": 160,
    "validate_every": 4,
    "log_every": 1,
    "schedule": {"kind": "constant", "peak": 1e-2},
    "device": "cpu",
    "threads": 1,  # no process encodes
}


@dataclass(frozen=True)
class Case:
    """A task with its data and with inputs as lines of a file: short, long, and with a stranger."""

    recipe: dict[str, Any]
    lines: list[str]


def sentences(n: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(2, 7))) for _ in range(n)]


def some_text(path: Path) -> Path:
    file = path / "text.txt"
    file.write_text("\n\n".join(sentences(200)) + "\n", encoding="utf-8")
    return file


TEXTS = ["amber birch", "cedar", "ember ÿ flint", " ".join(WORDS)]


def translation(path: Path) -> Case:
    file = write_tsv(path / "pairs.tsv", reversal_pairs(200))
    return Case(tiny_settings(file, "model.encoder.dropout=0.1"), ["abc", "d", "aÿb", "abcdeabc"])


def classification(path: Path) -> Case:
    rows = [(text, text.split()[0]) for text in sentences(200)]
    train = {"kind": "tsv", "path": str(write_tsv(path / "texts.tsv", rows))}
    recipe = {
        "data": {"train": train, "hold_out": 0.2},
        "text": {"tokenizer": TEXT, "max_length": 64, "token_dropout": 0.2},
        "model": ENCODER,
        "head": {"dropout": 0.3},
        "training": {"ema": 0.9},
    }
    return Case(recipe, TEXTS)


def embedding(path: Path) -> Case:
    pairs = [(text, text.split()[0]) for text in sentences(200)]
    scored = [(a, b, str(len(a) % 5)) for a, b in pairs[:40]]
    train = {"kind": "tsv", "path": str(write_tsv(path / "pairs.tsv", pairs)), "second": 1}
    valid = {**train, "path": str(write_tsv(path / "scored.tsv", scored)), "label": 2}
    data = {"train": train, "valid": valid}
    text = {"tokenizer": TEXT, "max_length": 64}
    return Case({"data": data, "text": text, "model": ENCODER}, TEXTS)


def question_answering(path: Path) -> Case:
    rows = [
        {"id": str(i), "context": text, "question": "which ?", "answers": [text.split()[1]]}
        for i, text in enumerate(sentences(200))
    ]
    train = {"kind": "jsonl", "path": str(write_jsonl(path / "questions.jsonl", rows))}
    text = {"tokenizer": {"kind": "symbols"}, "max_length": 16, "stride": 4, "max_question": 4}
    model = {**ENCODER, "segments": True}
    recipe = {"data": {"train": train, "hold_out": 0.2}, "text": text, "model": model}
    return Case(recipe, [f"which ?\t{text}" for text in [*TEXTS, " ".join(WORDS * 5)]])


def masked_language_model(path: Path) -> Case:
    train = {"kind": "text", "path": str(some_text(path)), "documents": "blank-line"}
    text = {"tokenizer": {"kind": "symbols"}, "max_length": 16}
    data, masking = {"train": train, "hold_out": 0.2}, {"whole_words": True}
    recipe = {"data": data, "text": text, "model": ENCODER, "masking": masking}
    return Case(recipe, ["amber <mask>", "<mask>", "ÿ <mask> flint", "amber birch cedar <mask>"])


def language_model(path: Path) -> Case:
    train = {"kind": "text", "path": str(some_text(path)), "documents": "blank-line"}
    recipe = {
        "data": {"train": train, "hold_out": 0.2},
        "text": {"tokenizer": TEXT, "block": 32},
        "model": DECODER,
        "decoding": {"method": "beam", "max_tokens": 12},
    }
    return Case(recipe, TEXTS)


def dialogue(path: Path) -> Case:
    rows = [{"turns": [text, text.split()[0]]} for text in sentences(200)]
    recipe = {
        "data": {"train": {"path": str(write_jsonl(path / "turns.jsonl", rows))}, "hold_out": 0.2},
        "text": {"tokenizer": TEXT, "block": 64},
        "model": DECODER,
        "decoding": {"method": "beam", "max_tokens": 12},
    }
    return Case(recipe, TEXTS)


def recommendation(path: Path) -> Case:
    rows = [("user", "item", "time")]
    rows += [(f"u{u}", f"i{(7 * u + t) % 20}", str(t)) for u in range(60) for t in range(8 + u % 5)]
    train = {"kind": "tsv", "path": str(write_tsv(path / "items.tsv", rows))}
    recipe = {"data": {"train": train, "block": 16}, "model": DECODER}
    return Case(recipe, ["i1 i2", "i3", "i4 ÿ i5", "i1 i2 i3 i4 i5 i6"])


def image_classification(path: Path) -> Case:
    train = write_table(path / "pictures", *stripes(60))
    recipe = {
        "data": {"train": train, "hold_out": 0.2},
        "image": {"size": SIZE},
        "model": {**PICTURES, "label_dropout": 0.2},
        "augmentation": {"flip": True, "shift": 2, "rotate": 20, "cutout": 2},
        "training": {"ema": 0.9},
    }
    return Case(recipe, [str(path / "pictures" / f"{i:04}.png") for i in range(4)])


def captioning(path: Path) -> Case:
    pictures, kinds = stripes(60)
    train = write_table(path / "pictures", pictures, [f"stripes are {kind}" for kind in kinds])
    recipe = {
        "data": {"train": train, "hold_out": 0.2},
        "image": {"size": SIZE},
        "augmentation": {"flip": True, "shift": 2},
        "training": {"ema": 0.9},
        "text": {"tokenizer": {"kind": "symbols"}, "max_length": 8},
        "model": {"vision": PICTURES, "decoder": stack(positions="rotary", dropout=0.1)},
    }
    return Case(recipe, [str(path / "pictures" / f"{i:04}.png") for i in range(4)])


def speech(path: Path, train: dict[str, Any], text: dict[str, Any]) -> Case:
    recipe = {
        "data": {"train": train, "hold_out": 0.2, "speeds": [1.0, 1.1]},
        "audio": AUDIO,
        "text": text,
        "model": {
            "d_model": 16,
            "front_end": {"n_layers": 1, "channels": 8},
            "encoder": stack(dropout=0.1),
            "decoder": stack(dropout=0.1),
        },
        "evaluation": {"validation_recordings": 4},
    }
    return Case(recipe, [str(path / "tunes" / f"{i:04}.wav") for i in range(4)])


def speech_recognition(path: Path) -> Case:
    return speech(path, write_tunes(path / "tunes", 60), {"tokenizer": TEXT})


def speech_translation(path: Path) -> Case:
    train = {**write_tunes(path / "tunes", 60), "text": "reversed", "transcript": "text"}
    return speech(path, train, {"tokenizer": TEXT, "transcript_tokenizer": TEXT})


def speech_synthesis(path: Path) -> Case:
    recipe = {
        "data": {"train": write_tunes(path / "tunes", 60), "hold_out": 0.2},
        "audio": AUDIO,
        "text": {"tokenizer": TEXT},
        "model": {
            "kind": "attention",
            "d_model": 16,
            "front_end": {"width": 8},
            "encoder": stack(dropout=0.1),
            "decoder": stack(dropout=0.1),
            "postnet": {"n_layers": 2, "channels": 8},
        },
        "speaking": {"seconds_per_token": 0.1, "rounds": 2},
        "evaluation": {"validation_texts": 2},
    }
    return Case(recipe, ["abc", "d", "aeb", "abcdeabc"])  # a voice refuses unknown characters


CASES: dict[str, Callable[[Path], Case]] = {
    "translation": translation,
    "classification": classification,
    "embedding": embedding,
    "question-answering": question_answering,
    "masked-language-model": masked_language_model,
    "language-model": language_model,
    "dialogue": dialogue,
    "recommendation": recommendation,
    "image-classification": image_classification,
    "captioning": captioning,
    "speech-recognition": speech_recognition,
    "speech-translation": speech_translation,
    "speech-synthesis": speech_synthesis,
}
FILMED = (
    "translation",
    "classification",
    "question-answering",
    "masked-language-model",
    "language-model",
    "dialogue",
)
"""Tasks with sentences for a film of learning."""
IMPORTED = ("image-embedding",)
"""Not trained but imported; a recipe of theirs says so."""


def recipe_of(task: str, path: Path) -> tuple[dict[str, Any], list[str]]:
    case = CASES[task](path)
    return merge_settings({"task": task, "training": TRAINING}, case.recipe), case.lines


@pytest.fixture(scope="module", params=CASES)
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any], list[str]]:
    """A run of each task, its recipe, and lines of input."""
    path = tmp_path_factory.mktemp(request.param)
    recipe, lines = recipe_of(request.param, path)
    return transduce.train(recipe, path / "run")[0], recipe, lines


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> Callable[..., list[str]]:
    """Runs a command in this process; gives the lines that it wrote to stdout."""

    def run(*arguments: object, lines: Sequence[str] = ()) -> list[str]:
        file = tmp_path / "stdin"
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        with file.open(encoding="utf-8") as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            assert cli.main([str(argument) for argument in arguments]) == 0
        return capfdbinary.readouterr().out.decode().split("\n")[:-1]

    return run


def test_every_task_is_here() -> None:
    assert {*CASES, *IMPORTED} == set(TASKS)
    assert all(row.explain is not None for row in TASKS.values())


@pytest.mark.parametrize("task", TASKS)
def test_a_row_names_its_recipe(task: str, tmp_path: Path) -> None:
    row = TASKS[task]
    assert row.name == row.recipe.task == task
    settings = recipe_of(task, tmp_path)[0] if task in CASES else {"task": task}
    if task == "image-embedding":
        settings["image"] = {"size": SIZE}
    recipe = row.recipe.parse(settings, "recipe")
    assert type(recipe) is row.recipe and isinstance(recipe, Recipe)
    assert isinstance(recipe.data, RootedData) and Path(recipe.data.root).is_absolute()
    assert row.recipe.parse(to_dict(recipe), "recipe") == recipe, (
        "what a run keeps is the same recipe"
    )


@pytest.mark.parametrize("task", IMPORTED)
def test_what_is_not_trained_says_so(task: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="models are imported"):
        TASKS[task].prepare(None, tmp_path)


def test_train_writes_a_run_and_says_where(
    trained: Any, tmp_path: Path, command: Callable[..., list[str]]
) -> None:
    """The same weights as in the fixture, which the same seed has decided."""
    run, recipe, _ = trained
    file, again = tmp_path / "recipe.toml", tmp_path / "again"
    file.write_text(to_toml(recipe), encoding="utf-8")
    assert command("train", file, "--run", again) == [str(again)]
    assert_equal_weights(again, run)


def test_an_interrupted_training_goes_on_to_the_same_weights(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a film, where the task has sentences for one."""
    run, recipe, _ = trained
    if recipe["task"] in FILMED:
        recipe = merge_settings(recipe, {"training": {"film": 3}})
    with monkeypatch.context() as patch, pytest.raises(InterruptedTraining):
        interrupt_at(5, patch)
        transduce.train(recipe, tmp_path / "run")
    transduce.train(recipe, tmp_path / "run", resume=True)
    assert_equal_weights(tmp_path / "run", run)
    film = transduce.load(tmp_path / "run", "cpu").film
    assert (film is not None) == (recipe["task"] in FILMED)
    if film is not None:
        assert [film.points[0], film.points[-1][1]] == [(0, 0.0), 1.0]
        assert len(film.scenes) == 3 and all(scene.attention[0] for scene in film.scenes)


def test_a_task_without_sentences_keeps_no_film(tmp_path: Path) -> None:
    recipe, _ = recipe_of("captioning", tmp_path)
    recipe = merge_settings(recipe, {"training": {"film": 3}})
    with pytest.raises(SettingError, match=r"training\.film: this task has no sentences"):
        transduce.train(recipe, tmp_path / "run")


def assert_equal_weights(a: Path, b: Path) -> None:
    found, wanted = (read_tensors(run / "weights.safetensors") for run in (a, b))
    assert found.keys() == wanted.keys()
    assert all(found[name].equal(wanted[name]) for name in wanted)


def test_one_line_of_input_is_one_line_of_output(
    trained: Any, command: Callable[..., list[str]]
) -> None:
    run, _, lines = trained
    names = transduce.load(run, "cpu").predictor.inputs
    blank = [] if names == ("image",) else [""]  # no picture has that name
    given = [*lines, *blank, lines[0]]
    answers = command("predict", run, lines=given)
    assert len(answers) == len(given)
    assert answers[-1] == answers[0], "equal lines, unlike answers"
    asked = [json.dumps(dict(zip(names, line.split("\t"), strict=True))) for line in lines]
    found = [json.loads(line) for line in command("predict", run, "--jsonl", lines=asked)]
    assert len(found) == len(lines)
    assert all(set(record) > set(names) for record in found), "nothing but what was asked"


def test_an_answer_does_not_depend_on_the_others(trained: Any) -> None:
    path, _, lines = trained
    run = transduce.load(path, "cpu")
    options = run.predictor.options
    greedy = dataclasses.replace(options, beam_size=1) if options else None
    inputs = [tuple(line.split("\t")) for line in lines]
    clear = steady(run.model, lambda: [choices(a.fields()) for a in run.predict(inputs, greedy)])
    inputs = [inputs[i] for i in clear]
    assert len(inputs) > len(lines) // 2
    together = [answer.fields() for answer in run.predict(inputs, greedy)]
    turned = [answer.fields() for answer in run.predict(inputs[::-1], greedy)][::-1]
    alone = [answer.fields() for one in inputs for answer in run.predict([one], greedy)]
    for a, b, c in zip(together, turned, alone, strict=True):
        assert close(b, a) and close(c, a)


def test_a_head_left_out_moves_the_answer_and_comes_back(trained: Any) -> None:
    path, _, lines = trained
    run, one = transduce.load(path, "cpu"), tuple(lines[0].split("\t"))
    before = run.explain(one).as_dict()
    head = f"{run.explain(one).attention[0].name}:1"
    part = run.explain(one, without=KnockOut(heads=(head,))).as_dict()
    assert part.pop("run") == f"run without {head}"
    results = ("steps", "labels", "span", "hidden", "vectors")
    assert any(part[name] != before[name] for name in results)
    assert run.explain(one).as_dict() == before


def test_looking_changes_no_answer(trained: Any, command: Callable[..., list[str]]) -> None:
    path, recipe, lines = trained
    run = transduce.load(path, "cpu")
    inputs = [tuple(line.split("\t")) for line in lines]
    before = [answer.fields() for one in inputs for answer in run.predict([one])]
    fresh = transduce.load(path, "cpu")
    seen = [fresh.explain(one) for one in inputs]
    assert [run.explain(one).answer for one in inputs] == [one.answer for one in seen]
    after = [answer.fields() for one in inputs for answer in run.predict([one])]
    assert after == before, "not bitwise the same"
    network = run.in_pytorch  # which explains; digits of a vector are its own
    assert [one.answer for one in seen] == [
        a.text for one in inputs for a in network.predict([one])
    ]
    for one in seen:
        assert one.task == recipe["task"] and one.run == "run"
        assert one.attention and one.by_hand and one.stacks and one.shapes
        for attention in one.attention:
            sizes = len(one.sequences[attention.rows]), len(one.sequences[attention.columns])
            assert attention.weights.shape[1:] == sizes
            assert ((attention.weights >= 0) & (attention.weights <= 1 + 1e-5)).all()
        assert len(one.page().encode()) < 300_000
    told = command("explain", path, "--json", lines=lines)
    assert [json.loads(line)["answer"] for line in told] == [one.answer for one in seen]
    assert command("explain", path, lines=lines[:1])
    (beside,) = command("explain", path, "--against", path, "--json", lines=lines[:1])
    assert [one["answer"] for one in json.loads(beside)["runs"]] == [seen[0].answer] * 2
    assert command("explain", path, "--against", path, lines=lines[:1])


def test_evaluate_and_info(trained: Any, command: Callable[..., list[str]]) -> None:
    run, recipe, _ = trained
    (scores,) = command("evaluate", run, "--split", "valid", "--json")
    assert json.loads(scores)
    (facts,) = command("info", run, "--json")
    found = json.loads(facts)
    assert found["task"] == recipe["task"]
    assert found["parameters"] > 1000 and found["validation"]
    assert found["inputs"] == list(transduce.load(run, "cpu").predictor.inputs)
