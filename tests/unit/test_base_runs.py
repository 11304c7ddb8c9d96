"""What a recipe takes from the run that it starts from, and which runs those can be."""

from pathlib import Path
from typing import Any

import pytest
import tomli_w

from transduce import RunError
from transduce.settings.sections import merge_settings, to_dict
from transduce.tasks import TASKS

STACK = {"n_layers": 1, "n_heads": 2, "d_ff": 16}
LEARNED = {**STACK, "positions": "learned", "max_positions": 41}
ENCODER = {"model": {"d_model": 16, "encoder": LEARNED}}
DECODER = {"model": {"d_model": 16, "decoder": {**LEARNED, "max_positions": 900}}}
IMAGE = {"image": {"size": 8}}
WORDS = {"kind": "hugging-face"}
READS = {"tokenizer": WORDS, "max_length": 41}
BLOCK = {"tokenizer": WORDS, "block": 900}
WINDOWS = {"stride": 7, "max_question": 9}
CAPTIONER = {**IMAGE, "model": {"vision": {"d_model": 16}, "decoder": LEARNED}}

TAKEN: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("classification", "embedding", ENCODER, {"text": READS}),
    ("masked-language-model", "classification", ENCODER, {"text": READS}),
    ("question-answering", "question-answering", ENCODER, {"text": {**READS, **WINDOWS}}),
    ("language-model", "language-model", DECODER, {"text": BLOCK}),
    ("dialogue", "language-model", DECODER, {"text": BLOCK}),
    ("recommendation", "recommendation", DECODER, {"data": {"block": 900}}),
    ("captioning", "captioning", CAPTIONER, {"text": READS}),
]


def base_run(directory: Path, task: str, *sections: dict[str, Any]) -> str:
    """A run directory with nothing but its settings."""
    settings: dict[str, Any] = {"task": task}
    for section in sections:
        settings = merge_settings(settings, section)
    (directory / "recipe.toml").write_text(tomli_w.dumps(settings), encoding="utf-8")
    return str(directory)


def parsed(task: str, run: str, **sections: Any) -> dict[str, Any]:
    """A recipe's settings, all of them, where it says what it starts from and `sections`."""
    settings = merge_settings({"task": task, "data": {}, "fine_tune": {"run": run}}, sections)
    found: dict[str, Any] = to_dict(TASKS[task].recipe.parse(settings, "recipe"))
    return found


@pytest.mark.parametrize(("task", "base", "model", "taken"), TAKEN)
def test_what_it_reads_at_once_is_the_other_runs(
    task: str, base: str, model: dict[str, Any], taken: dict[str, Any], tmp_path: Path
) -> None:
    run = base_run(tmp_path, base, model, taken)
    recipe = parsed(task, run)
    for section, settings in taken.items():
        assert recipe[section].items() >= settings.items()
    # A run directory spells everything out and needs no other run.
    (tmp_path / "recipe.toml").unlink()
    assert to_dict(TASKS[task].recipe.parse(recipe, "recipe")) == recipe


def test_what_the_recipe_says_goes_before_it(tmp_path: Path) -> None:
    run = base_run(tmp_path, "classification", ENCODER, {"text": {**READS, "sampling": 0.5}})
    text = parsed("classification", run, text={"max_length": 20})["text"]
    assert text["max_length"] == 20 and text["tokenizer"] == WORDS
    assert text["sampling"] == 0  # how to train is the recipe's own affair


def test_questions_from_a_run_of_another_task_keep_their_own_windows(tmp_path: Path) -> None:
    run = base_run(tmp_path, "masked-language-model", ENCODER, {"text": READS})
    text = parsed("question-answering", run, text=WINDOWS)["text"]
    assert text["max_length"] == 41 and text["stride"] == 7


@pytest.mark.parametrize(
    ("task", "base", "right"),
    [
        ("classification", "translation", "'masked-language-model'"),
        ("language-model", "dialogue", "'language-model'"),
        ("dialogue", "classification", "'dialogue', 'language-model'"),
        ("recommendation", "language-model", "'recommendation'"),
        ("translation", "language-model", "'translation'"),
        ("captioning", "image-classification", "'captioning'"),
        ("image-classification", "captioning", "'image-embedding'"),
    ],
)
def test_a_run_of_another_kind_is_refused(task: str, base: str, right: str, tmp_path: Path) -> None:
    run = base_run(tmp_path, base, {"model": {"d_model": 16}})
    with pytest.raises(RunError) as caught:
        parsed(task, run)
    said = str(caught.value)
    assert said.startswith(f"fine_tune.run: {run} is a run of the task {base!r}; ")
    assert f"the task {task!r} can start from " in said and right in said
