"""Small images, and files of them."""

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]


def noise(h: int, w: int, channels: int = 3, seed: int = 0) -> Pixels:
    """Every pixel at random."""
    shape = (h, w, channels) if channels > 1 else (h, w)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(pixels: Any, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of an image file."""
    file = io.BytesIO()
    (pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)).save(
        file, kind, **options
    )
    return file.getvalue()


def written(path: Path, data: bytes) -> Path:
    """A file of these bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def idx(array: NDArray[Any], code: int = 0x08) -> bytes:
    """The bytes of an IDX file; code: its element type."""
    header = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.tobytes()
