"""Imported ViTs say what `transformers` says of the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from helpers.hugging_face import largest_difference, loaded, save
from transduce.config import parse
from transduce.interop.models import import_directory
from transduce.models.encoder_only import EncoderOnly
from transduce.models.vision import VisionConfig, build_vision
from transduce.nn.front_ends.patches import interpolate_positions

TOLERANCE = 1e-5
TABLE = "encoder.positions.table.weight"
SHAPES = [
    {"hidden_size": 24, "num_attention_heads": 3, "patch_size": 4},
    {"num_channels": 1, "hidden_act": "relu", "num_hidden_layers": 4, "image_size": 28},
    {"qkv_bias": False, "patch_size": 16, "layer_norm_eps": 1e-6, "intermediate_size": 13},
]


def vit(directory: Path, **changes: Any) -> Any:
    small = {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 32,
        "image_size": 32,
        "patch_size": 7 if changes.get("image_size") == 28 else 8,
        "id2label": {0: "cat", 1: "dog", 2: "owl"},
    }
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**{**small, **changes}))
    save(model, directory)
    return model


def imported(directory: Path, size: int | None = None) -> EncoderOnly:
    """The model for images of a size, by default its own."""
    found = import_directory(directory)
    assert found.recipe["task"] == "image-classification"
    assert found.labels == ("cat", "dog", "owl")
    image = found.recipe["image"]
    made_of = parse(VisionConfig, found.recipe["model"])
    weights = dict(found.weights)
    model = build_vision(made_of, size or image["size"], image["channels"], 3)
    if size is not None:
        own = build_vision(made_of, image["size"], image["channels"], 3)
        grids = own.front_end.grid, model.front_end.grid  # type: ignore[union-attr]
        weights[TABLE] = interpolate_positions(weights[TABLE], *grids, class_token=True)
    loaded(model, weights)
    return model


@pytest.mark.parametrize("shape", SHAPES)
def test_logits(shape: dict[str, Any], tmp_path: Path) -> None:
    reference = vit(tmp_path, **shape)
    size, channels = reference.config.image_size, reference.config.num_channels
    images = torch.randn(3, channels, size, size)
    with torch.no_grad():
        expected = reference(images).logits
        found = imported(tmp_path)(images)
    assert largest_difference(found, expected) < TOLERANCE
    assert expected.std() > 0.1


@pytest.mark.parametrize("size", [24, 48])
def test_logits_at_another_resolution(size: int, tmp_path: Path) -> None:
    reference = vit(tmp_path, num_hidden_layers=3)
    images = torch.randn(3, 3, size, size)
    with torch.no_grad():
        expected = reference(images, interpolate_pos_encoding=True).logits
        found = imported(tmp_path, size)(images)
    assert largest_difference(found, expected) < TOLERANCE
