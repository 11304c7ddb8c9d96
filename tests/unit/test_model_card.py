"""Model cards: metadata that the Hub reads, names of files without their places, safe texts."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.tiny_run import reversal_pairs, tiny_recipe, tiny_settings, write_tsv
from transduce.recipes import read_recipe
from transduce.runs.directory import VOCABULARIES, files_to_hand_on, model_card
from transduce.tasks import TASKS
from transduce.tasks.model_card import card_text, code, data_told, file_name
from transduce.training.trainer import Outcome

SHORT = (
    "training.steps=2",
    "training.validate_every=2",
    "languages.source=en",
    "languages.target=de",
)
NASTY = "a: \"b\" 'c' #{[`*_|&%@!\\ü – 🙂"


def metadata(card: str) -> dict[str, Any]:
    """The head of a card, read by a YAML parser."""
    yaml = pytest.importorskip("yaml")
    nothing, head, _ = card.split("---\n", 2)
    assert nothing == ""
    found = yaml.safe_load(head)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("private")
    data = write_tsv(directory / "pairs.tsv", reversal_pairs(60))
    return transduce.train(tiny_settings(data, *SHORT), directory / "tiny")[0]


def test_the_head_says_what_the_hub_asks_for(run: Path) -> None:
    card = (run / "README.md").read_text(encoding="utf-8")
    found = metadata(card)
    assert found["library_name"] == "transduce" and found["pipeline_tag"] == "translation"
    assert found["language"] == ["en", "de"] and found["tags"] == ["transduce", "translation"]
    assert found["metrics"] == ["wer", "per"]
    (model,) = found["model-index"]
    (result,) = model["results"]
    assert model["name"] == "tiny" and result["task"] == {"type": "translation"}
    assert result["dataset"]["name"] == "held out of pairs.tsv"
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert values["loss"] > 0 and all(type(value) is float for value in values.values())
    assert "base_model" not in found and "# license: not known" in card
    assert "\n# tiny\n" in card


def test_the_hubs_own_library_reads_it(run: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    card = hub.ModelCard((run / "README.md").read_text(encoding="utf-8"))
    assert card.data.model_name == "tiny"
    assert {one.metric_type for one in card.data.eval_results} >= {"loss"}
    assert card.text.strip().startswith("# tiny")
    again = hub.ModelCard(str(card))
    assert again.data.to_dict() == card.data.to_dict()


def test_no_place_on_this_machine_is_named(run: Path) -> None:
    card = (run / "README.md").read_text(encoding="utf-8")
    assert 'path = "pairs.tsv"' in card
    assert str(run.parent) not in card and "private" not in card and "root =" not in card


def test_the_files_that_it_names_make_a_run(run: Path, tmp_path: Path) -> None:
    files = files_to_hand_on(run)
    card = (run / "README.md").read_text(encoding="utf-8")
    assert f"copy {', '.join(f'`{file}`' for file in files)}, and" in card
    assert not {"checkpoints", "metrics.jsonl"} & {*files}
    for file in files:
        shutil.copy(run / file, tmp_path / file)
    moved = transduce.load(tmp_path, "cpu")
    assert moved("abc") == transduce.load(run, "cpu")("abc")
    for pattern in VOCABULARIES:
        assert {file.name for file in run.glob(pattern)} <= {*files}


def test_names_cannot_break_it(run: Path, tmp_path: Path) -> None:
    ending = "\n---\nx: y\n\x85\u2028\x00\x7f"
    outcome = Outcome(2, 1.0, 2, {"loss": 1e-5, "odd": float("nan"), "bleu": 1e20}, False)
    recipe = tiny_recipe(tmp_path / f"{NASTY}.tsv", *SHORT)
    evaluation = dataclasses.replace(recipe.evaluation, target_language=NASTY + ending)
    languages = dataclasses.replace(recipe.languages, source=(), target=())
    recipe = dataclasses.replace(recipe, evaluation=evaluation, languages=languages)
    card = model_card(tmp_path / NASTY, recipe, outcome)
    found = metadata(card)
    (model,) = found["model-index"]
    assert model["name"] == NASTY
    assert model["results"][0]["dataset"]["name"] == f"held out of {NASTY}.tsv"
    values = {one["type"]: one["value"] for one in model["results"][0]["metrics"]}
    assert values == {"loss": 0.0, "bleu": 1e20}
    (language,) = found["language"]
    assert language.startswith(NASTY) and language.isprintable()
    title = next(line for line in card.splitlines() if line.startswith("# a"))
    assert "\\*" in title and "\\`" in title
    for name in (NASTY + ending, "- x", "a\nb", ": ", "~", "null", "1"):
        files, scores, made_of = ["weights.safetensors"], {"loss": 1.0}, [name, "ok"]
        text = card_text(name, recipe, "told", files, scores, made_of, pipeline_tag="translation")
        assert metadata(text)["base_model"] in (["ok"], [name, "ok"])
        assert metadata(text)["model-index"][0]["name"].split() == name.split() or ending in name


def test_texts_in_code_spans_and_names_of_files() -> None:
    assert code("a b") == "`a b`" and code("a`b``c") == "``` a`b``c ```" and code("a\nb") == "`a b`"
    assert file_name("/home/me/a.tsv") == file_name("a.tsv") == "a.tsv" and file_name("/") == "/"


def test_a_fine_tuned_run_names_its_base(run: Path, tmp_path: Path) -> None:
    recipe = {**tiny_settings(run.parent / "pairs.tsv", *SHORT), "fine_tune": {"run": str(run)}}
    recipe.pop("model"), recipe.pop("text")
    tuned, _ = transduce.train(recipe, tmp_path / "tuned")
    card = (tuned / "README.md").read_text(encoding="utf-8")
    assert metadata(card)["base_model"] == ["tiny"]
    assert "from the run `tiny`" in card and str(run) not in card


def test_data_of_the_hub_keep_their_name(run: Path) -> None:
    recipe: Any = read_recipe(run)
    hub = {"task": "translation", "data": {"train": {"kind": "hub", "path": "bentrevett/multi30k"}}}
    recipe = TASKS["translation"].recipe.parse(hub, "recipe")
    assert 'path = "bentrevett/multi30k"' in data_told(recipe.data)
    found = metadata(card_text("m", recipe, "", [], {"loss": 1.0}, pipeline_tag="translation"))
    assert found["datasets"] == ["bentrevett/multi30k"]
    dataset = found["model-index"][0]["results"][0]["dataset"]
    assert dataset["name"] == "held out of bentrevett/multi30k"


def test_every_task_is_known_to_the_hub_or_to_none() -> None:
    assert [name for name, task in TASKS.items() if not task.pipeline_tag] == ["recommendation"]
