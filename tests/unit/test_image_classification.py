"""Labels for images: data of every format, training, answers that do not hang on the batch."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import transduce
from helpers.labelled_images import MODEL, settings
from helpers.pictures import (
    KINDS,
    png,
    stripes,
    write_folder,
    write_idx,
    write_parquet,
    write_table,
    write_zip,
)
from transduce import DataError
from transduce.settings.sections import apply_overrides, parse
from transduce.tasks.labels import LabelPrediction
from transduce.training.fine_tuning import ADAPTER_FILE, apply_adapter
from transduce.training.weights import read_tensors
from transduce.vision.captioning import CaptioningEvaluation
from transduce.vision.classification import ImageClassificationRecipe, ImageClassifier
from transduce.vision.images import AugmentationConfig, ImageConfig, normalise_pixels
from transduce.vision.splits import ImageDataConfig, read_images_of
from transduce.vision.vit import CaptioningConfig, VisionConfig, interpolate_positions

WITH_TOKEN = {**MODEL, "class_token": True}
WITH_STEM = {**MODEL, "patch_size": 1, "stem": [8, 12]}
MODELS = {"mean": MODEL, "token": WITH_TOKEN, "stem": WITH_STEM}


def fresh(model: dict[str, Any] = MODEL, cache: Path = Path("unused")) -> ImageClassifier:
    """A classifier with first weights."""
    torch.manual_seed(1)
    recipe = ImageClassificationRecipe.parse(
        settings({"kind": "folder", "path": "a"}, model=model), "x"
    )
    return ImageClassifier(recipe, KINDS, cache)


def write_files(directory: Path, n: int, seed: int = 7) -> list[str]:
    """Paths of so many pictures."""
    paths = [directory / f"{i}.png" for i in range(n)]
    for path, picture in zip(paths, stripes(n, seed)[0], strict=True):
        path.write_bytes(png(picture))
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_folder(tmp_path_factory.mktemp("data") / "stripes", *stripes(120))


@pytest.fixture(scope="module")
def run(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return transduce.train(settings(data), tmp_path_factory.mktemp("runs") / "run")[0]


def answers(run: Path, paths: list[str]) -> list[dict[str, float]]:
    return [found.fields()["probabilities"] for found in transduce.load(run).predict(paths)]


class TestLearning:
    @pytest.mark.system
    @pytest.mark.parametrize(
        ("write", "model", "channels"),
        [
            (write_folder, "mean", 3),
            (write_zip, "token", 3),
            (write_idx, "stem", 1),
            (write_parquet, "token", 1),
            (write_table, "stem", 3),
        ],
    )
    def test_learns(self, write: Any, model: str, channels: int, tmp_path: Path) -> None:
        recipe = settings(
            write(tmp_path / "train", *stripes(500)),
            "training.steps=100",
            "training.validate_every=50",
            "training.select_by=accuracy",
            "augmentation.shift=1",
            f"image.channels={channels}",
            model=MODELS[model],
        )
        recipe["data"]["test"] = write(tmp_path / "test", *stripes(100, seed=1))
        path, outcome = transduce.train(recipe, tmp_path / "run")
        assert outcome.scores["accuracy"] > 85  # 94 with AVX2, above 95 with AVX-512
        evaluation = transduce.load(path).evaluate()
        assert evaluation.scores["accuracy"] > 85
        assert len(evaluation.references) == 100

    def test_augmentation_is_for_training_alone(self, data: Any, tmp_path: Path) -> None:
        classifier = transduce.load(
            transduce.train(
                settings(data, "augmentation.rotate=180", "training.steps=1"), tmp_path / "run"
            )[0]
        )
        assert classifier.evaluate("valid").scores == classifier.evaluate("valid").scores
        paths = write_files(tmp_path, 3)
        assert answers(tmp_path / "run", paths) == answers(tmp_path / "run", paths)


class TestPredicting:
    @pytest.mark.parametrize("model", MODELS)
    def test_the_batch_changes_nothing(self, model: str, tmp_path: Path) -> None:
        classifier = fresh(MODELS[model])
        paths = [(path,) for path in write_files(tmp_path, 70)]  # more than go together
        together = classifier.predict(paths)
        for i in (0, 5, 63, 64, 69):
            (alone,) = classifier.predict([paths[i]])
            assert alone.text == together[i].text
            assert together[i].probabilities == pytest.approx(alone.probabilities, abs=1e-5)
        assert len({found.probabilities["flat"] for found in together}) == 70

    def test_blank_paths_have_no_label(self, tmp_path: Path) -> None:
        (path,) = write_files(tmp_path, 1)
        found = fresh().predict([("",), (path,), ("  ",)])
        assert [bool(one.text) for one in found] == [False, True, False]
        assert found[0] == LabelPrediction() and fresh().predict([]) == []

    def test_a_file_is_read_as_in_training(self, tmp_path: Path) -> None:
        pictures = np.random.default_rng(0).integers(0, 256, (4, 19, 13, 3), dtype=np.uint8)
        section = write_table(tmp_path / "table", pictures, ["a", "b", "a", "b"])
        classifier = fresh()
        data = parse(ImageDataConfig, {"valid": section}, "x")
        images = read_images_of(data, classifier.recipe.image, "valid", tmp_path)
        pixels = torch.from_numpy(images.pixels(np.arange(4)))
        wanted = classifier.scores(normalise_pixels(pixels, classifier.recipe.image)).exp()
        paths = [(str(tmp_path / "table" / f"{i:04}.png"),) for i in range(4)]
        for scores, found in zip(wanted, classifier.predict(paths), strict=True):
            assert list(found.probabilities.values()) == pytest.approx(scores.tolist(), abs=1e-6)

    @pytest.mark.parametrize("content", [b"no image", png(stripes(1)[0][0])[:60], None])
    def test_a_broken_file_is_named_with_its_number(
        self, content: bytes | None, tmp_path: Path
    ) -> None:
        (good,) = write_files(tmp_path, 1)
        bad = tmp_path / "bad.png"
        if content is not None:
            bad.write_bytes(content)
        with pytest.raises(DataError, match=f"^input 12: {bad}") as raised:
            fresh().predict([(good,), (str(bad),)], first=10)
        assert "\n" not in str(raised.value)


class TestEvaluating:
    def test_an_unknown_label_counts_as_wrong(
        self, data: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        pictures, labels = stripes(30, seed=5)
        valid = write_folder(tmp_path / "valid", pictures, [*labels[:10], *["spots"] * 20])
        _, outcome = transduce.train(
            settings(data, data={"train": data, "valid": valid}), tmp_path / "run"
        )
        assert "20 of 30 valid images have labels that no training image has" in caplog.text
        assert outcome.scores["accuracy"] <= 100 / 3 and outcome.scores["loss"] < 3
        evaluation = transduce.load(tmp_path / "run").evaluate("valid")
        assert evaluation.scores["accuracy"] == pytest.approx(outcome.scores["accuracy"])

    def test_validation_and_evaluation_agree(self, run: Path) -> None:
        loaded = transduce.load(run)
        found = loaded.evaluate("valid")
        assert found.scores["accuracy"] == pytest.approx(loaded.info()["validation"]["accuracy"])
        assert all(source.startswith("valid image ") for source in found.sources)
        assert loaded.evaluate("test").sources != found.sources


class TestRunDirectory:
    def test_positions_are_just_as_many_as_needed(self, run: Path) -> None:
        weights = read_tensors(run / "weights.safetensors")
        assert weights["encoder.positions.table.weight"].shape == (4, 24)
        token = fresh(WITH_TOKEN).model
        assert token.encoder.positions.table.weight.shape == (5, 24)
        assert token.head.pooling == "first" and fresh().model.head.pooling == "mean"


class TestFineTuning:
    def tuned(self, data: Any, base: Path, path: Path, *overrides: str) -> Path:
        recipe = settings(data, "training.steps=1", "training.schedule.peak=1e-9")
        del recipe["model"], recipe["image"]
        recipe["fine_tune"] = {"run": str(base)}
        return transduce.train(apply_overrides(recipe, overrides), path)[0]

    def test_the_same_size_starts_from_the_same_answers(self, data: Any, tmp_path: Path) -> None:
        how = ("image.mean=[0.3]", "image.std=[0.2]", "image.channels=1")
        base, _ = transduce.train(settings(data, *how, model=WITH_TOKEN), tmp_path / "base")
        tuned = self.tuned(data, base, tmp_path / "tuned")
        before, after = transduce.load(base).recipe, transduce.load(tuned).recipe
        assert (after.model, after.image) == (before.model, before.image)
        paths = write_files(tmp_path, 5)
        for old, new in zip(answers(base, paths), answers(tuned, paths), strict=True):
            assert new == pytest.approx(old, abs=1e-4)

    @pytest.mark.system
    @pytest.mark.parametrize("model", [MODEL, WITH_TOKEN], ids=["mean", "token"])
    @pytest.mark.parametrize("lora", [False, True])
    def test_another_size_interpolates_positions(
        self, model: dict[str, Any], lora: bool, data: Any, tmp_path: Path
    ) -> None:
        base, _ = transduce.train(settings(data, model=model), tmp_path / "base")
        how = ["fine_tune.lora={rank=2}"] if lora else []
        tuned = self.tuned(data, base, tmp_path / "tuned", "image.size=16", *how)
        name = "encoder.positions.table.weight"
        old, new = (read_tensors(path / "weights.safetensors")[name] for path in (base, tuned))
        token = "class_token" in model
        wanted = interpolate_positions(old, (2, 2), (4, 4), token)
        torch.testing.assert_close(new, wanted, rtol=0, atol=1e-6)
        assert len(next(transduce.load(tuned).predict(write_files(tmp_path, 2))).text) > 0
        if lora:
            merged = apply_adapter(read_tensors(base / "weights.safetensors"), tuned / ADAPTER_FILE)
            assert merged[name].equal(new)

    def test_other_labels_get_a_new_head(self, data: Any, run: Path, tmp_path: Path) -> None:
        pictures, labels = stripes(40)
        other = write_folder(
            tmp_path / "b", pictures, [str(label == "flat").lower() for label in labels]
        )
        tuned = self.tuned(other, run, tmp_path / "tuned")
        assert transduce.load(tuned).info()["labels"] == ["false", "true"]
        old, new = (read_tensors(path / "weights.safetensors") for path in (run, tuned))
        name = "encoder.layers.0.self_attention.query_key_value.weight"
        assert old[name].allclose(new[name], atol=1e-6)


class TestPage:
    """docs/vision.md."""

    PAGE = (Path(__file__).parents[2] / "docs" / "vision.md").read_text(encoding="utf-8")

    @pytest.mark.parametrize(
        "section",
        [ImageConfig, AugmentationConfig, VisionConfig, CaptioningConfig, CaptioningEvaluation],
    )
    def test_every_setting_is_named(self, section: type) -> None:
        for field in dataclasses.fields(section):
            assert f"`{field.name}`" in self.PAGE or f"{field.name}]`" in self.PAGE, field.name
