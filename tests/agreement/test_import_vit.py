"""Imported ViTs say what `transformers` says of the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from PIL import Image

import transduce
from helpers.hugging_face import largest_difference, loaded, save, write_json
from helpers.pictures import stripes, write_folder
from helpers.tiny_run import training
from transduce.interop.models import import_directory
from transduce.models.encoder_only import EncoderOnly
from transduce.runs.importing import import_run
from transduce.settings.sections import parse
from transduce.vision.vit import VisionConfig, build_vision, interpolate_positions

TOLERANCE = 1e-5
TABLE = "encoder.positions.table.weight"
SHAPES = [
    {"hidden_size": 24, "num_attention_heads": 3, "patch_size": 4},
    {"num_channels": 1, "hidden_act": "relu", "num_hidden_layers": 4, "image_size": 28},
    {"qkv_bias": False, "patch_size": 16, "layer_norm_eps": 1e-6, "intermediate_size": 13},
]


def vit(directory: Path, kind: str = "ViTForImageClassification", **changes: Any) -> Any:
    small = {
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 32,
        "image_size": 32,
        "patch_size": 7 if changes.get("image_size") == 28 else 8,
        "id2label": {0: "cat", 1: "dog", 2: "owl"},
    }
    model = getattr(transformers, kind)(transformers.ViTConfig(**{**small, **changes}))
    save(model, directory)
    return model


def imported(directory: Path, size: int | None = None) -> EncoderOnly:
    """The model for images of a size, by default its own."""
    result = import_directory(directory)
    assert result.recipe["task"] == "image-classification"
    assert result.labels == ("cat", "dog", "owl")
    image = result.recipe["image"]
    made_of = parse(VisionConfig, result.recipe["model"])
    weights = dict(result.weights)
    model = build_vision(made_of, size or image["size"], image["channels"], made_of.label_head(3))
    if size is not None:
        own = build_vision(made_of, image["size"], image["channels"], made_of.label_head(3))
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
        result = imported(tmp_path)(images)
    assert largest_difference(result, expected) < TOLERANCE
    assert expected.std() > 0.1


@pytest.mark.parametrize("size", [24, 48])
def test_logits_at_another_resolution(size: int, tmp_path: Path) -> None:
    reference = vit(tmp_path, num_hidden_layers=3)
    images = torch.randn(3, 3, size, size)
    with torch.no_grad():
        expected = reference(images, interpolate_pos_encoding=True).logits
        result = imported(tmp_path, size)(images)
    assert largest_difference(result, expected) < TOLERANCE


PIXELS = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": 32, "width": 32},
    "image_mean": [0.48, 0.45, 0.4],
    "image_std": [0.22, 0.23, 0.3],
}
MIDDLE = {
    "size": {"shortest_edge": 32},
    "do_center_crop": True,
    "crop_size": {"height": 32, "width": 32},
}


@pytest.mark.parametrize(
    ("message", "sides", "tolerance"),
    [
        ({}, (32, 32), TOLERANCE),
        ({"rescale_factor": 1 / 127.5}, (32, 32), TOLERANCE),
        ({"do_rescale": False}, (32, 32), TOLERANCE),
        ({"do_normalize": False}, (32, 32), TOLERANCE),
        ({"do_normalize": False, "rescale_factor": 0.01}, (32, 32), TOLERANCE),
        ({"image_mean": 0.5, "image_std": 0.25}, (32, 32), TOLERANCE),
        ({}, (64, 48), 2e-2),
        (MIDDLE, (64, 48), 2e-2),
        (MIDDLE, (46, 64), 2e-2),
    ],
)
def test_probabilities_of_images_from_files(
    message: dict[str, Any], sides: tuple[int, int], tolerance: float, tmp_path: Path
) -> None:
    """As the processor makes them, but for a grey value here and there where it resizes."""
    reference = vit(tmp_path / "vit")
    write_json(tmp_path / "vit" / "preprocessor_config.json", {**PIXELS, **message})
    run = transduce.load(import_run(tmp_path / "vit", tmp_path / "run"), "cpu")
    coarse = np.random.default_rng(0).integers(0, 256, (3, 6, 8, 3), np.uint8)
    images = [Image.fromarray(pixels).resize(sides) for pixels in coarse]
    for i, image in enumerate(images):
        image.save(tmp_path / f"{i}.png")
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "vit")
    with torch.no_grad():
        observed = processor(images, return_tensors="pt")["pixel_values"]
        expected = reference(observed).logits.softmax(-1)
    answers = run.predict([str(tmp_path / f"{i}.png") for i in range(3)])
    result = [list(answer.fields()["probabilities"].values()) for answer in answers]
    assert largest_difference(torch.tensor(result), expected) < tolerance


@pytest.mark.parametrize("kind", ["ViTModel", "ViTForMaskedImageModeling"])
@pytest.mark.parametrize("normalize", [True, False])
def test_vectors_of_a_model_without_labels(kind: str, normalize: bool, tmp_path: Path) -> None:
    reference = vit(tmp_path / "vit", kind, num_hidden_layers=3)
    changes = [f"evaluation.normalize={str(normalize).lower()}"]
    run = transduce.load(import_run(tmp_path / "vit", tmp_path / "run", overrides=changes), "cpu")
    assert run.info()["task"] == "image-embedding" and run.info()["dimensions"] == 16
    pixels = np.random.default_rng(1).integers(0, 256, (3, 32, 32, 3), np.uint8)
    paths = [str(tmp_path / f"{i}.png") for i in range(3)]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image).save(path)
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2) / 127.5 - 1
    with torch.no_grad():
        expected = getattr(reference, "vit", reference)(images).last_hidden_state[:, 0]
    if normalize:
        expected = torch.nn.functional.normalize(expected, dim=-1)
    answers = list(run.predict([*paths, ""]))
    result = torch.tensor([answer.fields()["embedding"] for answer in answers[:3]])
    assert largest_difference(result, expected) < TOLERANCE
    assert answers[3].text == "" and len(answers[0].text.split()) == 16
    with pytest.raises(transduce.DataError, match="no references"):
        run.evaluate("test")
    left_out = (tmp_path / "run" / "README.md").read_text()
    assert ("pooler.dense" in left_out) == (kind == "ViTModel")


def test_a_model_without_labels_learns_some(tmp_path: Path) -> None:
    vit(tmp_path / "vit", "ViTModel", image_size=8, patch_size=4)
    base = import_run(tmp_path / "vit", tmp_path / "base")
    pictures, labels = stripes(120)
    photos = write_folder(tmp_path / "photos", pictures, labels)
    recipe = {
        "task": "image-classification",
        "data": {"train": photos, "hold_out": 0.2},
        "fine_tune": {"run": str(base)},
        "training": training(2, 256, 1e-3),
    }
    run, _ = transduce.train(recipe, tmp_path / "run")
    tuned = transduce.load(run, "cpu")
    assert tuned.info()["labels"] == ["diagonal", "flat", "upright"]
    before, after = (
        safetensors.torch.load_file(path / "weights.safetensors") for path in (base, run)
    )
    assert set(after) - set(before) == {"head.output.weight", "head.output.bias"}
    near = [float((after[name] - before[name]).abs().max()) for name in before]
    assert max(near) < 0.01, "two small steps from where it began"
