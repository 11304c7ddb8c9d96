"""Live pages of ViTs: every number of `explain --json`, and the pixels of any image."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.live_page import differences, engine, live_explanations, live_of, needs_node
from helpers.node import run_node
from helpers.random_predictors import drawn
from transduce.errors import SettingError
from transduce.explain.report import png_of
from transduce.vision.classification import (
    ImageClassificationRecipe,
    ImageClassifier,
    ImageEmbedder,
    ImageEmbeddingRecipe,
)
from transduce.vision.explaining import explain_image_classification, explain_image_embedding
from transduce.vision.images import ImageConfig, fit_square, read_image

pytestmark = [pytest.mark.system, needs_node]
pytest.importorskip("PIL", reason="pillow is not installed")

ENCODER = {"n_layers": 2, "n_heads": 2, "d_ff": 24, "norm_order": "pre", "positions": "learned"}


def image_file(path: Path, channels: int, height: int, width: int) -> Path:
    """A PNG of random pixels."""
    generator = torch.Generator().manual_seed(3)
    shape = (channels, height, width)
    path.write_bytes(png_of(torch.randint(256, shape, generator=generator, dtype=torch.uint8)))
    return path


def typed(path: Path, image: ImageConfig) -> str:
    """The text of an image in a page: its name and its pixels."""
    pixels = fit_square(read_image(path, image.channels), image.size, image.fit)
    return f"{path}:{base64.b64encode(bytes(pixels.flatten().tolist())).decode()}"


def without_png(page: dict[str, Any], python: Any) -> dict[str, Any]:
    return {**page, "picture": {**page["picture"], "png": python.as_dict()["picture"]["png"]}}


MODELS: dict[str, dict[str, Any]] = {
    "patches": {"model": {"patch_size": 2}, "image": {"channels": 1}},
    "class token, colour, own means": {
        "model": {"patch_size": 4, "class_token": True},
        "image": {"channels": 3, "mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]},
    },
    "stem, post-norm, sinusoids": {
        "model": {
            "patch_size": 1,
            "stem": [3, 5],
            "encoder": {**ENCODER, "norm_order": "post", "positions": "sinusoidal"},
        },
        "image": {"channels": 3},
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_labels_of_images(name: str, tmp_path: Path) -> None:
    """Their credit sums up, of patches and all else, to the difference of the logits."""
    model = {"d_model": 16, "encoder": ENCODER, **MODELS[name]["model"]}
    settings = {
        "task": "image-classification",
        "data": {"train": {"kind": "idx", "images": "none", "labels": "none"}},
        "image": {"size": 8, **MODELS[name]["image"]},
        "model": model,
    }
    recipe = ImageClassificationRecipe.parse(settings, "recipe")
    classifier = drawn(ImageClassifier(recipe, ("one", "two", "three"), tmp_path))
    path = image_file(tmp_path / "a.png", 3, 13, 11)
    (shown,) = live_explanations(tmp_path, live_of(classifier, ""), [(typed(path, recipe.image),)])
    expected = explain_image_classification(classifier, (str(path),))
    assert differences(expected, without_png(shown, expected)) == []
    (credit,) = shown["credit"]
    n = len(shown["sequences"]["image"])
    assert len(credit["source"]) == len(credit["source_positions"]) == n
    shares = [*credit["source"], *credit["source_positions"], credit["biases"]]
    assert sum(shares) == pytest.approx(credit["difference"], abs=1e-3)


def test_vectors_of_images(tmp_path: Path) -> None:
    settings = {
        "task": "image-embedding",
        "image": {"size": 8},
        "model": {"d_model": 16, "encoder": ENCODER, "patch_size": 4},
    }
    recipe = ImageEmbeddingRecipe.parse(settings, "recipe")
    embedder = drawn(ImageEmbedder(recipe))
    path = image_file(tmp_path / "a.png", 3, 8, 8)
    (shown,) = live_explanations(tmp_path, live_of(embedder, ""), [(typed(path, recipe.image),)])
    expected = explain_image_embedding(embedder, (str(path),))
    page = {**without_png(shown, expected), "answer": expected.answer}
    assert differences(expected, page) == []


FIT = """
const { readFileSync } = require("fs");
const asked = JSON.parse(readFileSync("asked.json", "utf8"));
const answers = asked.map(([rgba, w, h, image]) => [...fitted(rgba, w, h, image)]);
process.stdout.write(JSON.stringify(answers));
"""


@pytest.mark.parametrize("fit", ["squash", "crop"])
@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_of_an_image_of_another_size(channels: int, fit: Any, tmp_path: Path) -> None:
    """As Python reads and resizes the file, to a rounding."""
    asked, expected = [], []
    for height, width, size in [(7, 5, 8), (40, 23, 8), (8, 8, 8), (9, 64, 12)]:
        path = image_file(tmp_path / "a.png", 3, height, width)
        image = ImageConfig(size=size, channels=1 if channels == 1 else 3, fit=fit)
        red_green_blue = read_image(path, 3)
        opaque = torch.full((1, height, width), 255)
        rgba = torch.cat([red_green_blue, opaque]).permute(1, 2, 0).flatten().tolist()
        asked.append([rgba, width, height, image.of_each_channel()])
        expected.append(fit_square(read_image(path, image.channels), size, fit).flatten())
    (tmp_path / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    for pixels, page in zip(expected, run_node(tmp_path, engine() + FIT), strict=True):
        difference = (pixels.int() - torch.tensor(page)).abs()
        assert difference.max() <= 1
        assert difference.float().mean() < 0.02


def test_links_without_an_image_are_refused_by_their_bytes(tmp_path: Path) -> None:
    code = """
const texts = ["hello", "a.png:A", "a.png:__", "a.png:AAAA"];
const answers = texts.map((text) => {
  try {
    return imageOf(text, { size: 2, channels: 1 });
  } catch (error) {
    return [error.word, error.sizes];
  }
});
process.stdout.write(JSON.stringify(answers));
"""
    expected = [["wrongPixels", [n, 4]] for n in (0, 0, 0, 3)]
    assert run_node(tmp_path, engine() + code) == expected


def test_images_that_are_too_large_are_named(tmp_path: Path) -> None:
    settings = {
        "task": "image-embedding",
        "image": {"size": 320},
        "model": {"d_model": 16, "encoder": ENCODER, "patch_size": 32},
    }
    embedder = ImageEmbedder(ImageEmbeddingRecipe.parse(settings, "recipe"))
    with pytest.raises(SettingError, match=r"at most 256 pixels, and image\.size is 320"):
        live_of(embedder, "")
