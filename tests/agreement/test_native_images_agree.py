"""Encoders of images in the native engine: answers of PyTorch, alone and in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from PIL import Image

import transduce
from helpers.hugging_face import save
from helpers.native import needs_native
from helpers.random_predictors import drawn
from transduce.runs.importing import import_run
from transduce.settings.sections import to_toml
from transduce.tasks.labels import FILE
from transduce.training.weights import weights_of, write_weights
from transduce.vision.classification import ImageClassificationRecipe, ImageClassifier

pytestmark = needs_native

TOLERANCE = 1e-5
LABELS = ("cat", "dog", "owl")
SHAPES: list[dict[str, Any]] = [
    {"d_model": 24, "class_token": True},
    {"d_model": 20, "stem": [6], "patch_size": 2},
    {"d_model": 30, "encoder": {"n_heads": 3, "d_ff": 21, "positions": "rotary", "n_layers": 2}},
]


def classifier_run(directory: Path, **model: Any) -> Path:
    """A run with random weights, for images of 24 pixels."""
    image = {"size": 24, "channels": 3}
    settings = {"task": "image-classification", "data": {}, "image": image, "model": model}
    recipe = ImageClassificationRecipe.parse(settings, "recipe")
    made = drawn(ImageClassifier(recipe, LABELS, directory / "cache"))
    directory.mkdir()
    (directory / "recipe.toml").write_text(to_toml(recipe), encoding="utf-8")
    (directory / FILE).write_text('["cat", "dog", "owl"]', encoding="utf-8")
    write_weights(directory / "weights.safetensors", weights_of(made.model))
    return directory


def imported_run(directory: Path, kind: str) -> Path:
    """An imported ViT with random weights and patches enough for attention by packed products."""
    shape: dict[str, Any] = {"hidden_size": 48, "num_attention_heads": 3, "intermediate_size": 80}
    sizes: dict[str, Any] = {"num_hidden_layers": 2, "image_size": 68, "patch_size": 4}
    settings = transformers.ViTConfig(**shape, **sizes, id2label=dict(enumerate(LABELS)))
    save(getattr(transformers, kind)(settings), directory / "vit")
    return import_run(directory / "vit", directory / "run")


def pictures(directory: Path, count: int = 5) -> list[tuple[str, ...]]:
    """Paths of random images of several sizes, and a blank."""
    chance = np.random.default_rng(0)
    paths = [directory / f"{i}.png" for i in range(count)]
    for i, path in enumerate(paths):
        pixels = chance.integers(0, 256, (24 + 9 * i, 30, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    return [*((str(path),) for path in paths), ("",)]


def answer_numbers(answers: Any) -> np.ndarray[Any, Any]:
    """Probabilities or vectors (n, k) of all answers but the blank at the end."""
    fields = [answer.fields() for answer in answers[:-1]]
    rows = [list(f.get("probabilities", {}).values()) or f["embedding"] for f in fields]
    return np.array(rows)


def check_agreement(run: Path, inputs: list[tuple[str, ...]]) -> None:
    """The engine's answers are PyTorch's, and the same to the bit for each image alone."""
    reference = transduce.load(run, "cpu", engine="pytorch").predictor.predict(inputs)
    expected = answer_numbers(reference)
    assert np.ptp(expected, 0).max() > 100 * TOLERANCE, "answers depend on the images"
    tolerances: dict[Any, float] = {"float32": TOLERANCE, "bf16": 0.02, "int8": 0.05}
    for precision, tolerance in tolerances.items():
        native = transduce.load(run, engine="auto", device="cpu", precision=precision)
        assert native.engine == "native"
        answers = native.predictor.predict(inputs)
        assert np.abs(answer_numbers(answers) - expected).max() < tolerance, precision
        assert [native.predictor.predict([paths])[0] for paths in inputs] == list(answers)


@pytest.mark.parametrize("model", SHAPES, ids=["class-token", "stem", "rotary"])
def test_classifiers(model: dict[str, Any], tmp_path: Path) -> None:
    run = classifier_run(tmp_path / "run", **model)
    check_agreement(run, pictures(tmp_path))
    assert transduce.load(run, "cpu", engine="pytorch").info()["native_engine"].startswith("yes")


@pytest.mark.parametrize("kind", ["ViTForImageClassification", "ViTModel"])
def test_imports(kind: str, tmp_path: Path) -> None:
    check_agreement(imported_run(tmp_path, kind), pictures(tmp_path))
