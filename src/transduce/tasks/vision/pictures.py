"""An image as the input of a model, and as a PNG for a page."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from transduce.explain.parts import Picture
from transduce.explain.picture import png_of
from transduce.image.transform import ImageConfig
from transduce.nn.front_ends.patches import PatchFrontEnd
from transduce.tasks.vision.images import named_images

LONGEST_SIDE = 96
"""Pixels of the side of a picture in a page."""


def one_image(path: str, image: ImageConfig) -> Tensor:
    """The normalised image (1, c, h, w) of a path.  Raises InputError for a file that is none."""
    (images,) = named_images([(path,)], image, [0], 1)
    return images


def picture_of(images: Tensor, image: ImageConfig, front_end: Any) -> tuple[Picture, list[str]]:
    """A normalised image (1, c, h, w) as a picture, and a name for each position of the encoder."""
    assert isinstance(front_end, PatchFrontEnd)
    rows, columns = front_end.grid
    token = front_end.class_token is not None
    cells = [f"r{i + 1}c{j + 1}" for i in range(rows) for j in range(columns)]
    mean = torch.tensor(image.mean)[:, None, None]
    std = torch.tensor(image.std)[:, None, None]
    pixels = images[0].float().cpu() * std + mean
    stride = -(-pixels.shape[-1] // LONGEST_SIDE)
    shown = (pixels[:, ::stride, ::stride] * 255).round().clamp(0, 255).to(torch.uint8)
    picture = Picture(png_of(shown), (rows, columns), int(token))
    return picture, [*(["[class]"] if token else []), *cells]
