"""An image as a model sees it, and as a PNG for a page."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import torch
from torch import Tensor

from transduce.image.transform import ImageConfig
from transduce.inspect.parts import Picture
from transduce.nn.front_ends.patches import PatchFrontEnd
from transduce.tasks.vision.images import named_images

LONGEST_SIDE = 96
"""Pixels of the side of a picture in a page."""


def one_image(path: str, image: ImageConfig) -> Tensor:
    """The normalised image (1, c, h, w) of a path.  Raises InputError for a file that is none."""
    ((_, images),) = named_images([(path,)], image, 0, 1)
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


def png_of(pixels: Tensor) -> bytes:
    """Bytes (c, h, w) of one or three channels as a PNG."""
    c, h, w = pixels.shape
    lines = pixels.permute(1, 2, 0).reshape(h, w * c).numpy()
    raw = b"".join(b"\0" + line.tobytes() for line in lines)
    head = struct.pack(">IIBBBBB", w, h, 8, 2 if c == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)
