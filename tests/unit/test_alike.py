"""Weights are averaged of runs alone whose models are alike and fed alike."""

from pathlib import Path
from typing import Any

import pytest

import transduce
from helpers.labelled_images import settings as image_settings
from helpers.labelled_texts import settings as text_settings
from helpers.tiny_run import reversal_pairs, tiny_settings, train_tiny, write_tsv
from transduce.errors import RunError
from transduce.recipes import parse_recipe
from transduce.runs.importing import average_runs, check_alike
from transduce.settings.sections import apply_overrides
from transduce.tasks.recipe import Recipe

IMAGES = image_settings({"kind": "folder", "path": "x"})
TEXTS = text_settings(Path("x.tsv"))
PAIRS = tiny_settings(Path("x.tsv"))
DIALOGUES = {
    "task": "dialogue",
    "data": {"train": {"path": "train.jsonl"}},
    "model": {"d_model": 32, "decoder": {"positions": "rotary", "n_heads": 2}},
}


def made(settings: dict[str, Any], *overrides: str) -> Recipe:
    return parse_recipe(apply_overrides(settings, overrides), "recipe")


@pytest.mark.parametrize(
    ("settings", "override", "name"),
    [
        (IMAGES, "image.mean=[0.1]", "image.mean"),
        (IMAGES, "image.std=[0.5, 0.5, 0.1]", "image.std"),
        (IMAGES, "image.fit=crop", "image.fit"),
        (IMAGES, "model.d_model=48", "model.d_model"),
        (TEXTS, "text.max_length=16", "text.max_length"),
        (TEXTS, "data.train.second=2", "data.inputs"),
        (DIALOGUES, "text.block=64", "text.block"),
        (DIALOGUES, "data.roles=['one', 'other']", "data.roles"),
        (PAIRS, "data.train.tag=de", "data.train.tag"),
        (PAIRS, "model.scale_embeddings=false", "model.scale_embeddings"),
        (PAIRS, "model.tie=none", "model.tie"),
        (PAIRS, "model.encoder.positions=learned", "model.encoder.positions"),
        (PAIRS, "model.decoder.norm_order=post", "model.decoder.norm_order"),
        (PAIRS, "model.decoder.activation=gelu", "model.decoder.activation"),
        (PAIRS, "model.encoder.norm_epsilon=0.01", "model.encoder.norm_epsilon"),
        (TEXTS, "model.pooling=max", "model.pooling"),
        (PAIRS, "data.train.tag_columns=[2]", "data.train.tag"),
    ],
)
def test_every_setting_of_the_input_is_named(
    settings: dict[str, Any], override: str, name: str
) -> None:
    with pytest.raises(RunError, match=rf"b and a have different .*\({name}: .*cannot be averaged"):
        check_alike(Path("b"), made(settings, override), Path("a"), made(settings))


@pytest.mark.parametrize(
    ("settings", "overrides"),
    [
        (IMAGES, ("image.mean=[0.5, 0.5, 0.5]", "augmentation.flip=true", "seed=2")),
        (TEXTS, ("model.encoder.dropout=0.5", "training.steps=3", "data.train.path='y.tsv'")),
        (PAIRS, ("data.filters.max_length=5", "decoding.beam_size=2", "text.target.min_count=2")),
        (DIALOGUES, ("data.loss_on=answers",)),
    ],
)
def test_what_is_of_training_alone_may_differ(
    settings: dict[str, Any], overrides: tuple[str, ...]
) -> None:
    check_alike(Path("b"), made(settings, *overrides), Path("a"), made(settings))


def test_runs_of_tasks_and_of_tokenizers(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"\(task: 'translation' and 'classification'\)"):
        check_alike(Path("b"), made(PAIRS), Path("a"), made(TEXTS))
    data = write_tsv(tmp_path / "a.tsv", reversal_pairs(60))
    one, _ = train_tiny(data, tmp_path / "one", "training.steps=1")
    other, _ = train_tiny(data, tmp_path / "other", "training.steps=1", "seed=2")
    (other / "tokenizer.json").write_bytes((other / "source_tokenizer.json").read_bytes())
    with pytest.raises(RunError, match=r"different vocabularies \(tokenizer.json\)"):
        average_runs([one, other], tmp_path / "mean")
    (other / "tokenizer.json").unlink()
    average_runs([one, other], tmp_path / "mean")
    assert transduce.load(tmp_path / "mean")("ab") is not None
