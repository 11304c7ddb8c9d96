"""Classification: training, answers that do not hang on the batch, mistakes, and the page."""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import transduce
from helpers.labelled_texts import BERT, TRANSFORMER, sentences, settings
from helpers.tiny_run import write_tsv
from transduce import DataError, RunError, SettingError
from transduce.models.config import EncoderOnlyConfig
from transduce.tasks.labels import LabelPrediction, load_labels
from transduce.tasks.text_encoder.predictor import TextClassifier
from transduce.tasks.text_encoder.recipes import (
    ClassificationRecipe,
    ClassifierTextConfig,
    LabelHeadConfig,
)
from transduce.tasks.text_inputs import Row, mask_id
from transduce.tasks.training import encode_batches, labels_for, save_labels, tokenizer_for
from transduce.text import BOS, EOS, CharactersConfig, train_tokenizer
from transduce.training.weights import read_tensors, write_weights

WINDOWS = {"kind": "text-cnn", "widths": [2, 3], "dropout": 0.0}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tsv(tmp_path_factory.mktemp("data") / "a.tsv", sentences(400))


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    return transduce.train(settings(data), path)[0]


def fresh(*overrides: str, **sections: Any) -> TextClassifier:
    """A classifier with first weights."""
    torch.manual_seed(1)
    recipe = ClassificationRecipe.parse(settings(Path("a.tsv"), *overrides, **sections), "recipe")
    tokenizer = train_tokenizer(CharactersConfig(), ["abcdefgh ijklmnopqrstuvwxyz"])
    return TextClassifier(recipe, tokenizer, ("no", "yes"))


MODELS = [
    {"d_model": 16, "encoder": BERT, "pooling": "first", "segments": True, "pooler": True},
    {"d_model": 16, "encoder": TRANSFORMER, "pooling": "mean"},
    {"d_model": 16, "encoder": WINDOWS, "pooling": "max"},
    {"d_model": 16, "encoder": {"kind": "convolution", "n_layers": 2}, "pooling": "mean"},
    {"d_model": 16, "encoder": {"kind": "recurrent", "n_layers": 1}, "pooling": "max"},
]
TEXTS = [("abc",), ("a",), ("  ",), ("the quick brown fox",), ("",), ("zz" * 40,), ("abc",)]


class TestPredicting:
    def test_probabilities(self) -> None:
        found = fresh().predict(TEXTS)[0]
        assert set(found.probabilities) == {"no", "yes"}
        assert sum(found.probabilities.values()) == pytest.approx(1)
        best = max(found.probabilities, key=lambda label: found.probabilities[label])
        fields = found.fields()
        assert found.text == fields["label"] == best
        assert fields["probability"] == fields["probabilities"][best]

    def test_blank_inputs_have_no_label(self) -> None:
        found = fresh().predict(TEXTS)
        assert [not prediction.text for prediction in found] == [not t[0].strip() for t in TEXTS]
        assert found[2] == LabelPrediction() and fresh().predict([]) == []

    def test_the_second_text_counts(self) -> None:
        data = {"train": {"kind": "tsv", "path": "a.tsv", "second": 1, "label": 2}}
        model = {"d_model": 16, "encoder": BERT, "segments": True}
        classifier = fresh(data=data, model=model)
        assert classifier.inputs == ("text", "second")
        one, other, swapped, blank = classifier.predict(
            [("abc", "def"), ("abc", "xyz"), ("def", "abc"), (" ", "")]
        )
        assert one.probabilities != other.probabilities != swapped.probabilities
        assert blank.text == ""

    def test_order_is_kept_over_batches(self) -> None:
        classifier = fresh()
        rows = [Row([BOS, *[4] * n, EOS], [0] * (n + 2)) for n in (5, 1, 9, 3, 1)]
        alone, together = (encode_batches(classifier.model, rows, n) for n in (8, 999))
        assert torch.stack(alone).allclose(torch.stack(together), atol=1e-6)


class TestTraining:
    @pytest.mark.system
    @pytest.mark.parametrize(
        "model",
        [
            {"d_model": 32, "encoder": TRANSFORMER},
            {"d_model": 32, "encoder": WINDOWS, "pooling": "max"},
        ],
        ids=["transformer", "text-cnn"],
    )
    def test_learns(self, model: dict[str, Any], tmp_path: Path) -> None:
        write_tsv(tmp_path / "train.tsv", sentences(600))
        write_tsv(tmp_path / "test.tsv", sentences(100, seed=9))
        recipe = settings(
            tmp_path / "train.tsv",
            "training.steps=200",
            "training.validate_every=50",
            "training.select_by=accuracy",
            f"data.test={{kind = 'tsv', path = '{tmp_path / 'test.tsv'}'}}",
            model=model,
        )
        path, outcome = transduce.train(recipe, tmp_path / "run")
        assert outcome.scores["accuracy"] > 95
        evaluation = transduce.load(path).evaluate()
        assert evaluation.scores["accuracy"] > 95
        assert evaluation.references[0] == [sentences(100, seed=9)[0][1]]

    def test_learns_which_text_of_a_pair_is_which(self, tmp_path: Path) -> None:
        rows = [(a, b, "up" if a < b else "down") for a in "abcdef" for b in "abcdef" if a != b]
        path = write_tsv(tmp_path / "a.tsv", rows)
        source = {"kind": "tsv", "path": str(path), "second": 1, "label": 2}
        recipe = settings(
            path,
            "training.steps=150",
            "training.validate_every=50",
            data={"train": source, "valid": source},
            model={"d_model": 32, "encoder": {**BERT, "positions": "none"}, "segments": True},
        )
        assert transduce.train(recipe, tmp_path / "run")[1].scores["accuracy"] > 95

    def test_fine_tuned_from_another_run(self, data: Path, run: Path, tmp_path: Path) -> None:
        recipe = settings(data, "training.steps=1", "training.schedule.peak=1e-9")
        del recipe["model"], recipe["text"]["tokenizer"]
        path, _ = transduce.train({**recipe, "fine_tune": {"run": str(run)}}, tmp_path / "run")
        before, after = transduce.load(run), transduce.load(path)
        assert after.recipe.model == before.recipe.model
        texts = ["the dog", "an elm here"]
        for old, new in zip(before.predict(texts), after.predict(texts), strict=True):
            assert new.fields()["probabilities"] == pytest.approx(
                old.fields()["probabilities"], abs=1e-4
            )

    def test_run_directory(self, run: Path) -> None:
        assert load_labels(run) == ("animal", "plant", "stone")
        loaded = transduce.load(run)
        info = loaded.info()
        assert info["labels"] == ["animal", "plant", "stone"]
        assert info["inputs"] == ["text"]
        assert {"loss", "accuracy"} <= set(info["validation"])
        embedding = loaded.model.front_end.embedding
        assert embedding.num_embeddings == mask_id(loaded.predictor.tokenizer) + 1

    def test_examples_given_by_hand(self, run: Path) -> None:
        loaded = transduce.load(run)
        right = [next(iter(loaded.predict([text]))).text for text, _ in sentences(3)]
        examples = [(text, label) for (text, _), label in zip(sentences(3), right, strict=True)]
        evaluation = loaded.evaluate(examples=[*examples, ("the dog", "unheard of")])
        assert evaluation.scores["accuracy"] == 75


class TestMistakes:
    def fails(
        self, message: str, kind: type[Exception], recipe: dict[str, Any], path: Path
    ) -> None:
        with pytest.raises(kind, match=message) as raised:
            transduce.train(recipe, path / "run")
        assert "\n" not in str(raised.value)

    def test_no_such_column(self, tmp_path: Path) -> None:
        rows = [("sentence", "label"), ("a", "b")]
        recipe = settings(write_tsv(tmp_path / "a.tsv", rows), "data.train.text=sentense")
        self.fails("no column 'sentense'; did you mean 'sentence'", DataError, recipe, tmp_path)

    def test_one_label_only(self, tmp_path: Path) -> None:
        path = write_tsv(tmp_path / "a.tsv", [(text, "x") for text, _ in sentences(50)])
        self.fails("have the label 'x'; a classifier needs", DataError, settings(path), tmp_path)

    def test_nothing_to_train_on(self, tmp_path: Path) -> None:
        recipe = settings(write_tsv(tmp_path / "a.tsv", []))
        self.fails("a.tsv is empty", DataError, recipe, tmp_path)
        write_tsv(tmp_path / "a.tsv", [("",), ("",)])
        self.fails("no training examples", DataError, recipe, tmp_path)
        del recipe["data"]["train"]
        self.fails("data.train is missing", SettingError, recipe, tmp_path)

    def test_nothing_to_validate_with(self, tmp_path: Path) -> None:
        rows = [
            (f"the {animal}", "ab"[i % 2]) for i, animal in enumerate(["cat", "dog", "elk", "fox"])
        ]
        recipe = settings(write_tsv(tmp_path / "a.tsv", rows), "data.hold_out=0.0001")
        self.fails("raise data.hold_out, or set data.valid", DataError, recipe, tmp_path)

    def test_one_text_that_no_share_can_set_aside(self, tmp_path: Path) -> None:
        rows = [("the cat", "a"), ("the cat", "b")] * 250
        recipe = settings(write_tsv(tmp_path / "a.tsv", rows), "data.hold_out=0.0001")
        message = "no valid texts; set data.valid, since 1 distinct examples"
        self.fails(message, DataError, recipe, tmp_path)

    def test_labels_of_another_set(self, data: Path, tmp_path: Path) -> None:
        valid = write_tsv(tmp_path / "valid.tsv", [("the dog", "Animal"), ("the elm", "Plant")])
        override = f"data.valid={{kind = 'tsv', path = '{valid}'}}"
        message = "no valid text has a label of the training texts"
        self.fails(message, DataError, settings(data, override), tmp_path)

    def test_a_new_label_counts_as_wrong(
        self, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        rows = [*sentences(30, seed=5), *[("the dog", "god")] * 30]
        valid = write_tsv(tmp_path / "valid.tsv", rows)
        override = f"data.valid={{kind = 'tsv', path = '{valid}'}}"
        _, outcome = transduce.train(settings(data, override), tmp_path / "run")
        assert "30 of 60 valid texts have labels" in caplog.text
        assert outcome.scores["accuracy"] <= 50 and outcome.scores["loss"] < 2

    def test_settings_that_cannot_be(self, data: Path, tmp_path: Path) -> None:
        bert = {"encoder": {**BERT, "max_positions": 32}}
        recipe = settings(data, model={"d_model": 32, **bert})
        self.fails(
            "text.max_length = 64 exceeds the 32 learned positions", SettingError, recipe, tmp_path
        )
        recipe = settings(data, "training.select_by=bleu")
        self.fails("measures 'loss', 'accuracy'", SettingError, recipe, tmp_path)
        recipe = settings(data, "evaluation.metrics=['acuracy']")
        self.fails("did you mean 'accuracy'", SettingError, recipe, tmp_path)
        recipe = settings(data, "data.test={kind = 'tsv', path = 'a', second = 2, label = 1}")
        self.fails("all have a second text, or none", SettingError, recipe, tmp_path)
        recipe = settings(data, "data.pairs=true")
        self.fails("`second` and `pairs` agree", SettingError, recipe, tmp_path)
        recipe = settings(data, "head.droput=0.1")
        self.fails("did you mean 'dropout'", SettingError, recipe, tmp_path)

    def test_weights_are_chosen_by_macro_f1(self, data: Path, tmp_path: Path) -> None:
        recipe = settings(data, evaluation={"metrics": ["accuracy", "macro-f1"]})
        recipe["training"]["select_by"] = "macro-f1"
        run, outcome = transduce.train(recipe, tmp_path / "run")
        assert set(outcome.scores) == {"loss", "accuracy", "macro-f1"}
        evaluation = transduce.load(run).evaluate("valid")
        assert evaluation.scores["macro-f1"] == pytest.approx(outcome.scores["macro-f1"])

    def test_a_run_that_lost_its_files(self, data: Path, tmp_path: Path) -> None:
        for name, message in (
            ("labels.json", "no labels.json"),
            ("tokenizer.json", "no tokenizer"),
        ):
            path, _ = transduce.train(settings(data), tmp_path / name)
            (path / name).unlink()
            with pytest.raises(RunError, match=message):
                transduce.load(path)
            with pytest.raises(RunError, match=message):
                transduce.train(settings(data, "training.steps=20"), path, resume=True)
            assert not (path / name).exists()

    @pytest.mark.parametrize("content", ["[", '{"a": 1}', "[1, 2]", '["a", "a"]', "[]"])
    def test_damaged_labels(self, content: str, tmp_path: Path) -> None:
        (tmp_path / "labels.json").write_text(content)
        with pytest.raises(RunError, match="damaged"):
            load_labels(tmp_path)

    def test_labels_survive_the_file(self, tmp_path: Path) -> None:
        labels = ("好", 'say "no"', "a, b", "\\n")
        save_labels(tmp_path, labels)
        assert load_labels(tmp_path) == labels
        assert "好" in (tmp_path / "labels.json").read_text(encoding="utf-8")

    @pytest.mark.parametrize(
        ("found", "expected"),
        [
            (["10", "2", "-1", "2"], ("-1", "2", "10")),
            (["2.5", "10", "2"], ("2", "2.5", "10")),
            (["1", "01", "0"], ("0", "01", "1")),
            (["10", "2", "many"], ("10", "2", "many")),
            (["nan", "10", "2"], ("10", "2", "nan")),
        ],
    )
    def test_numbers_are_in_order_of_size(
        self, found: list[str], expected: tuple[str, ...], tmp_path: Path
    ) -> None:
        assert labels_for(tmp_path, found) == load_labels(tmp_path) == expected

    def test_a_blank_label_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"^2 of 3 training examples have a blank label; name"):
            labels_for(tmp_path, ["", "a", ""])
        assert not list(tmp_path.iterdir())

    def test_base_without_tokenizer(self, tmp_path: Path) -> None:
        (tmp_path / "base").mkdir()
        config = ClassificationRecipe.parse(
            settings(Path("a"), fine_tune={"run": str(tmp_path / "base")}), "recipe"
        )
        with pytest.raises(RunError, match="base has no tokenizer"):
            tokenizer_for(config.text, config.fine_tune, tmp_path, [])


ROOT = Path(__file__).parents[2]
SECTIONS = {"text": ClassifierTextConfig, "model": EncoderOnlyConfig, "head": LabelHeadConfig}
PAGE = (ROOT / "docs" / "classification.md").read_text(encoding="utf-8")


class TestPublished:
    """What the page and the recipes show can be run."""

    def test_every_setting_is_on_the_page(self) -> None:
        known = {f"{key}.{f.name}" for key, kind in SECTIONS.items() for f in fields(kind)}
        assert not [name for name in known if f"`{name.partition('.')[2]}`" not in PAGE]


class TestTheHeadOfAnotherRun:
    """What a run that is started from has learnt of labels is kept for these very labels alone."""

    STILL = ("training.steps=1", "training.validate_every=1", "training.schedule.peak=1e-9")
    LORA = ("fine_tune.lora.rank=2",)

    def tuned(self, base: Path, data: Path, directory: Path, *overrides: str) -> Path:
        settings_of = settings(data, *self.STILL, f"fine_tune.run={base}", *overrides)
        return transduce.train(settings_of, directory)[0]

    @pytest.mark.parametrize("overrides", [(), LORA])
    def test_labels_in_another_order(
        self, run: Path, data: Path, tmp_path: Path, overrides: tuple[str, ...]
    ) -> None:
        """An imported run has its labels in the order of its `id2label`."""
        base = tmp_path / "base"
        shutil.copytree(run, base)
        weights = read_tensors(base / "weights.safetensors")
        weights |= {k: v.flip(0) for k, v in weights.items() if k.startswith("head.output.")}
        write_weights(base / "weights.safetensors", weights)
        save_labels(base, load_labels(run)[::-1])
        tuned = self.tuned(base, data, tmp_path / "run", *overrides)
        assert load_labels(tuned) == load_labels(base)
        texts = [text for text, _ in sentences(20)]
        found = [answer.text for answer in transduce.load(tuned).predict(texts)]
        assert found == [answer.text for answer in transduce.load(run).predict(texts)]

    @pytest.mark.parametrize("overrides", [(), LORA])
    def test_other_labels_of_the_same_number(
        self, run: Path, data: Path, tmp_path: Path, overrides: tuple[str, ...]
    ) -> None:
        renamed = {label: f"{label}!" for label in load_labels(run)}
        rows = [(text, renamed[label]) for text, label in sentences(100)]
        other = write_tsv(tmp_path / "b.tsv", rows)
        before = read_tensors(run / "weights.safetensors")["head.output.weight"]
        tuned = self.tuned(run, other, tmp_path / "run", *overrides)
        assert load_labels(tuned) == tuple(renamed.values())
        model = transduce.load(tuned).model.state_dict()
        assert not torch.allclose(model["head.output.weight"], before, atol=1e-3)
        kept = "front_end.embedding.weight"
        assert torch.allclose(model[kept], read_tensors(run / "weights.safetensors")[kept])

    def test_another_tokenizer_is_refused(self, run: Path, data: Path, tmp_path: Path) -> None:
        other = 'text.tokenizer={kind="bpe",size=300}'
        with pytest.raises(SettingError, match=r"text\.tokenizer differs from .*; remove it"):
            self.tuned(run, data, tmp_path / "run", other)
