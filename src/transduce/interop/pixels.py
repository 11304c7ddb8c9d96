"""A ViT's `preprocessor_config.json` as settings of images."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

from transduce.errors import DataError
from transduce.interop.read import Config, is_number, read_json

logger = logging.getLogger("transduce")

BILINEAR = 2
MIN_SHARE = 0.8
"""Minimum share of a side that a crop must leave.  As models here get the whole image, a smaller
crop would be another image."""
_PROCESSOR = "ViTImageProcessor"
_DEIT = {"size": 256, "do_center_crop": True, "crop_size": 224, "resample": 3}
"""Defaults of DeiT's processor."""


def read_pixels(directory: Path, size: int) -> dict[str, Any]:
    """Image settings `fit`, `mean` and `std` from the directory.  size: the model's, in pixels.

    Logs a warning for small differences from the original images.  Raises DataError for larger
    ones.
    """
    path = directory / "preprocessor_config.json"
    if not path.is_file():
        return {}
    said = read_json(path)
    kind = said.get("image_processor_type") or said.get("feature_extractor_type") or _PROCESSOR
    if str(kind).startswith("DeiT"):
        said = {**_DEIT, **said}
    elif not str(kind).startswith("ViT"):
        logger.warning("%s: treating %r as %r", path, kind, _PROCESSOR)
    return {"fit": _fit(Config(said, path), size), **_scale(Config(said, path))}


def _scale(said: Config) -> dict[str, Any]:
    """Mean and deviation for pixels from 0 to 1; theirs run from 0 to 255 times a factor."""
    factor = said.number("rescale_factor", 1 / 255) if said.flag("do_rescale", True) else 1.0
    if not 0 < factor < math.inf:
        raise DataError(f"{said.path}: rescale_factor must be a number above 0, not {factor}")
    highest = 255 * factor
    if math.isclose(highest, 1, rel_tol=1e-6):  # as it is but for the digits written
        highest = 1.0
    mean, std = [0.0], [1.0]
    if said.flag("do_normalize", True):
        mean, std = _numbers(said, "image_mean"), _numbers(said, "image_std")
    # (x f - mean) / std for x from 0 to 255 is (y - mean / 255 f) / (std / 255 f) for y to 1.
    return {"mean": [m / highest for m in mean], "std": [s / highest for s in std]}


def _numbers(said: Config, name: str) -> list[float]:
    """One number, or one for each channel."""
    value = said.values.get(name)
    value = 0.5 if value is None else value
    values = value if isinstance(value, list) else [value]
    if not all(map(is_number, values)):
        raise DataError(f"{said.path}: {name} must be numbers, not {value!r}")
    return values


def _fit(said: Config, size: int) -> str:
    """Squash or crop images that are not square."""
    cropped = said.flag("do_center_crop", False)
    if not said.flag("do_resize", True):
        if cropped:
            raise DataError(
                f"{said.path}: do_center_crop = true without do_resize is not supported, as "
                "images are always resized here"
            )
        _warn(said, "do_resize = false", f"images are resized to {size} x {size} pixels")
        return "squash"
    if said.values.get("resample") not in (None, BILINEAR):
        _warn(said, f"resample = {said.values['resample']}", "images are resized bilinearly (2)")
    side, square = _side(said, "size", size)
    kept = _side(said, "crop_size", side)[0] if cropped else side
    if not MIN_SHARE * side <= kept <= side:
        raise DataError(
            f"{said.path}: crop_size = {kept} after a size of {side} is not supported, as the "
            "model gets the whole image here"
        )
    if kept < side:
        whole = "the whole image" if square else "all of the middle square"
        _warn(said, f"crop_size = {kept} after a size of {side}", f"the model gets {whole}")
    if kept != size:
        made = f"images are resized to {size} x {size}, the image_size in config.json"
        _warn(said, f"a size of {kept} pixels", made)
    if not square and not cropped:
        _warn(
            said,
            "size.shortest_edge without do_center_crop",
            "images are cropped to the middle square",
        )
    return "squash" if square else "crop"


def _side(said: Config, name: str, default: int) -> tuple[int, bool]:
    """Pixels of a side, and True if both sides get this length, False for the shorter one only."""
    value = said.values.get(name)
    value = default if value is None else value
    if not isinstance(value, dict):
        return Config({name: value}, said.path).integer(name), True
    sides = {side: length for side, length in value.items() if length is not None}
    lengths = list(sides.values())
    if set(sides) == {"height", "width"} and lengths[0] == lengths[1]:
        return Config(sides, said.path).integer("height"), True
    if set(sides) == {"shortest_edge"}:
        return Config(sides, said.path).integer("shortest_edge"), False
    raise DataError(
        f"{said.path}: {name} = {value!r} is not supported; use equal height and width, or "
        "shortest_edge"
    )


def _warn(said: Config, theirs: str, ours: str) -> None:
    logger.warning("%s: ignoring %s; %s", said.path, theirs, ours)
