"""Settings of recipes: what is accepted, and the one line that answers what is not."""

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.tiny_run import recipe, recipe_refusal, tiny_settings
from transduce.data.pairs import JsonLines, ParallelFiles
from transduce.errors import SettingError
from transduce.models.config import PRESETS
from transduce.settings.sections import (
    apply_overrides,
)
from transduce.tasks.translation.recipe import TranslationRecipe
from transduce.text import CharactersConfig, SubwordConfig


class TestRecipe:
    def test_the_promised_example(self) -> None:
        assert recipe_refusal("model.encoder.n_layer=3") == (
            "r.toml: model.encoder.n_layer is not a setting; did you mean 'n_layers'?"
        )

    def test_suggestions_know_the_kind(self) -> None:
        message = recipe_refusal("training.schedule.kind=noam", "training.schedule.peak=1")
        assert message == (
            "r.toml: training.schedule.peak is not a setting ('factor', 'kind', 'warmup_steps' are)"
        )

    def test_kinds_of_data(self) -> None:
        with pytest.raises(SettingError) as caught:
            TranslationRecipe.parse({"data": {"train": {"path": "x"}}}, "r.toml")
        assert str(caught.value) == (
            "r.toml: data.train.kind is missing; it is one of 'csv', 'hub', 'jsonl', 'parallel', "
            "'parquet', 'tsv'"
        )

    def test_data_of_another_kind_by_override(self) -> None:
        made = recipe("data.train.kind=jsonl", "data.train.path=a.jsonl")
        assert made.data.train == JsonLines(path=Path("a.jsonl"))
        made = recipe("data.valid={kind='parallel', source='a', target='b'}")
        assert made.data.valid == ParallelFiles(source=Path("a"), target=Path("b"))

    @pytest.mark.parametrize(
        "override",
        [
            "training.steps=0",
            "training.ema=1.0",
            "training.ema=nan",
            "training.label_smoothing=-0.1",
            "training.minutes=inf",
            "training.schedule.peak=inf",
            "training.precision=fp8",
            "seed=-1",
            "data.hold_out=0.5",
            "decoding.n_best=9",
            "evaluation.metrics=bleu",
        ],
    )
    def test_values_out_of_range(self, override: str) -> None:
        name, _, value = override.partition("=")
        message = recipe_refusal(override)
        assert message.startswith("r.toml: ") and value in message
        assert name.rpartition(".")[2] in message

    def test_preset_is_spelled_out_and_may_be_changed(self) -> None:
        settings = tiny_settings(Path("a.tsv"))
        settings["model"] = {"preset": "speller", "encoder": {"n_layers": 1}}
        model = TranslationRecipe.parse(settings, "r.toml").model
        speller = PRESETS["speller"]
        assert model == replace(speller, encoder=replace(speller.encoder, n_layers=1))

    def test_unknown_preset(self) -> None:
        message = recipe_refusal("model.preset=tinny")
        assert message == "r.toml: unknown model.preset 'tinny'; did you mean 'tiny'?"

    def test_a_tokenizer_of_no_kind_is_of_subwords(self) -> None:
        settings = tiny_settings(Path("a.tsv"))
        settings["text"] = {"source": {"kind": "characters"}, "target": {"size": 300}}
        text = TranslationRecipe.parse(settings, "r.toml").text
        assert text.target == SubwordConfig(kind="bpe", size=300)
        settings.pop("text")
        changed = apply_overrides(settings, ["text.source.size=400"], TranslationRecipe)
        assert TranslationRecipe.parse(changed, "r.toml").text.source == SubwordConfig(size=400)
        characters = ["text.source.kind=characters", "text.source.min_count=2"]
        other = apply_overrides(changed, characters, TranslationRecipe)
        assert TranslationRecipe.parse(other, "r.toml").text.source == CharactersConfig(min_count=2)

    def test_root_with_variables(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("CORPORA", str(tmp_path))
        assert recipe("data.root=$CORPORA/x").data.root == str(tmp_path / "x")
        assert "environment variable NOWHERE_AT_ALL is not set" in recipe_refusal(
            "data.root=$NOWHERE_AT_ALL/x"
        )
        refused = recipe_refusal('text.source={kind="file",path="$NOWHERE_AT_ALL/x"}')
        assert "text.source.path: the environment variable NOWHERE_AT_ALL is" in refused
