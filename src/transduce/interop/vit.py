"""ViT, with or without labels, and its `preprocessor_config.json` as settings of images."""

import logging
import math
from pathlib import Path
from typing import Any

from transduce.errors import DataError
from transduce.interop.layers import ACTIVATIONS, Copier, layer_parts, share
from transduce.interop.read import (
    Config,
    ImportedModel,
    is_number,
    open_checkpoint,
)
from transduce.nn.stack_configs import TransformerConfig
from transduce.settings.sections import to_dict
from transduce.support.files import read_json_object
from transduce.vision.vit import VisionConfig

logger = logging.getLogger("transduce")

BILINEAR = 2
MIN_SHARE = 0.8
"""Minimum share of a side that a crop must leave.  As models here get the whole image, a smaller
crop would be another image."""
_PROCESSOR = "ViTImageProcessor"
_DEIT = {"size": 256, "do_center_crop": True, "crop_size": 224, "resample": 3}
"""Defaults of DeiT's processor."""


def read_pixels(directory: Path, size: int) -> dict[str, Any]:
    """Image settings `fit`, `mean` and `std` from the directory, for a model of so many pixels.
    Warns of small differences from the original images, raises DataError for larger."""
    path = directory / "preprocessor_config.json"
    if not path.is_file():
        return {}
    settings = read_json_object(path)
    kind = (
        settings.get("image_processor_type") or settings.get("feature_extractor_type") or _PROCESSOR
    )
    if str(kind).startswith("DeiT"):
        settings = {**_DEIT, **settings}
    elif not str(kind).startswith("ViT"):
        logger.warning("%s: treating %r as %r", path, kind, _PROCESSOR)
    return {"fit": _fit(Config(settings, path), size), **_scale(Config(settings, path))}


def _scale(settings: Config) -> dict[str, Any]:
    """Mean and deviation for pixels from 0 to 1; theirs run from 0 to 255 times a factor."""
    factor = (
        settings.number("rescale_factor", 1 / 255) if settings.flag("do_rescale", True) else 1.0
    )
    if not 0 < factor < math.inf:
        raise DataError(f"{settings.path}: rescale_factor must be a number above 0, not {factor}")
    highest = 255 * factor
    if math.isclose(highest, 1, rel_tol=1e-6):  # as it is but for the digits written
        highest = 1.0
    mean, std = [0.0], [1.0]
    if settings.flag("do_normalize", True):
        mean, std = _numbers(settings, "image_mean"), _numbers(settings, "image_std")
    # (x f - mean) / std for x from 0 to 255 is (y - mean / 255 f) / (std / 255 f) for y to 1.
    return {"mean": [m / highest for m in mean], "std": [s / highest for s in std]}


def _numbers(settings: Config, name: str) -> list[float]:
    value = settings.values.get(name)
    value = 0.5 if value is None else value
    values = value if isinstance(value, list) else [value]
    if not all(map(is_number, values)):
        raise DataError(f"{settings.path}: {name} must be numbers, not {value!r}")
    return values


def _fit(settings: Config, size: int) -> str:
    cropped = settings.flag("do_center_crop", False)
    if not settings.flag("do_resize", True):
        if cropped:
            raise DataError(
                f"{settings.path}: do_center_crop = true without do_resize is not supported, as "
                "images are always resized here"
            )
        _warn(settings, "do_resize = false", f"images are resized to {size} x {size} pixels")
        return "squash"
    if settings.values.get("resample") not in (None, BILINEAR):
        _warn(
            settings,
            f"resample = {settings.values['resample']}",
            "images are resized bilinearly (2)",
        )
    side, square = _side(settings, "size", size)
    visible = _side(settings, "crop_size", side)[0] if cropped else side
    if not MIN_SHARE * side <= visible <= side:
        raise DataError(
            f"{settings.path}: crop_size = {visible} after a size of {side} is not supported, as "
            "the model gets the whole image here"
        )
    if visible < side:
        whole = "the whole image" if square else "all of the middle square"
        _warn(settings, f"crop_size = {visible} after a size of {side}", f"the model gets {whole}")
    if visible != size:
        made = f"images are resized to {size} x {size}, the image_size in config.json"
        _warn(settings, f"a size of {visible} pixels", made)
    if not square and not cropped:
        _warn(
            settings,
            "size.shortest_edge without do_center_crop",
            "images are cropped to the middle square",
        )
    return "squash" if square else "crop"


def _side(settings: Config, name: str, default: int) -> tuple[int, bool]:
    """Pixels of a side, and True if both sides get this length, False for the shorter alone."""
    value = settings.values.get(name)
    value = default if value is None else value
    if not isinstance(value, dict):
        return Config({name: value}, settings.path).integer(name), True
    sides = {side: length for side, length in value.items() if length is not None}
    lengths = list(sides.values())
    if set(sides) == {"height", "width"} and lengths[0] == lengths[1]:
        return Config(sides, settings.path).integer("height"), True
    if set(sides) == {"shortest_edge"}:
        return Config(sides, settings.path).integer("shortest_edge"), False
    raise DataError(
        f"{settings.path}: {name} = {value!r} is not supported; use equal height and width, or "
        "shortest_edge"
    )


def _warn(settings: Config, theirs: str, ours: str) -> None:
    logger.warning("%s: ignoring %s; %s", settings.path, theirs, ours)


_VIT_TASKS = {
    "ViTForImageClassification": "image-classification",
    "ViTModel": "image-embedding",
    "ViTForMaskedImageModeling": "image-embedding",
}
_PROJECTIONS = ("attention.query", "attention.key", "attention.value")
_VIT_LAYER = layer_parts(
    "attention.attention.query attention.attention.key attention.attention.value "
    "attention.output.dense layernorm_before",
    "intermediate.dense output.dense layernorm_after",
)


def import_vit(directory: Path, config: Config) -> ImportedModel:
    """Import a directory with `model_type` vit."""
    architecture = config.known_architecture(*_VIT_TASKS)
    task = _VIT_TASKS[architecture]
    checkpoint = open_checkpoint(directory)
    checkpoint.rename(r"^vit\.", "")
    copier = Copier(checkpoint, () if config.flag("qkv_bias", True) else _PROJECTIONS)
    m, d_ff = config.integer("hidden_size", 768), config.integer("intermediate_size", 3072)
    n_layers = config.integer("num_hidden_layers", 12)
    size, patch = config.integer("image_size", 224), config.integer("patch_size", 16)
    channels = config.integer("num_channels", 3)
    n_positions = (size // patch) ** 2 + 1

    projection = "embeddings.patch_embeddings.projection"
    kernel = checkpoint.take(f"{projection}.weight", m, channels, patch, patch)
    copier.weights["front_end.projection.weight"] = kernel.flatten(1)
    copier.weights["front_end.projection.bias"] = checkpoint.take(f"{projection}.bias", m)
    copier.weights["front_end.class_token"] = checkpoint.take("embeddings.cls_token", 1, 1, m)[0, 0]
    positions = checkpoint.take("embeddings.position_embeddings", 1, n_positions, m)
    copier.weights["encoder.positions.table.weight"] = positions[0]
    for i in range(n_layers):
        copier.layer(f"encoder.layers.{i}", f"encoder.layer.{i}.", _VIT_LAYER, m, d_ff)
    copier.norm("encoder.norm", "layernorm", m)
    labels = None
    if architecture == "ViTForImageClassification":
        labels = config.labels()
        copier.linear("head.output", "classifier", m, len(labels))
    left_out = checkpoint.finish(
        needless=(r"pooler\..*", r"embeddings\.mask_token", r"decoder\..*")
    )
    encoder = TransformerConfig(
        n_layers=n_layers,
        n_heads=config.integer("num_attention_heads", 12),
        d_ff=d_ff,
        activation=config.one_of("hidden_act", ACTIVATIONS, "gelu"),
        norm_order="pre",
        positions="learned",
        max_positions=n_positions,
        dropout=share(config, "hidden_dropout_prob", 0.0),
        attention_dropout=share(config, "attention_probs_dropout_prob", 0.0),
        norm_epsilon=config.number("layer_norm_eps", 1e-12),
    )
    model = VisionConfig(d_model=m, patch_size=patch, class_token=True, encoder=encoder)
    recipe = {
        "task": task,
        "data": {},
        "image": {"size": size, "channels": channels, **read_pixels(directory, size)},
        "model": to_dict(model),
    }
    return ImportedModel(recipe, copier.weights, labels=labels, left_out=left_out)
