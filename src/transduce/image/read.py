"""Read files as arrays of pixels: photographs and drawings with pillow, and IDX files."""

from __future__ import annotations

import gzip
import io
import math
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transduce.errors import DataError, first_line, needs_extra, reading
from transduce.support.limits import IDX_LIMIT

if TYPE_CHECKING:
    from PIL.Image import Image as PillowImage

Channels = Literal[1, 3]

# Not all that pillow knows: for EPS, for one, it starts another program on a stranger's file.
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF")
IMAGE_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".gif", ".bmp", ".dib", ".webp"),
    *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif"),
)
IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
CHUNK_BYTES = 2**24


def read_image(file: Path | bytes, channels: Channels, location: str = "") -> Tensor:
    """Pixels of an image file, as uint8 (c, h, w), in viewing orientation.

    Transparency is blended over white, 16 bits become 8, and the first of several frames is used.
    channels: 1 for grey, 3 for red, green and blue.  location: in messages, by default the path.
    Raises DataError for a file that is missing, broken, of an unknown format or so large that it
    may be an attack.
    """
    if not location:
        location = str(file) if isinstance(file, Path) else "the image"
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError(f"{location}: {needs_extra('reading images', 'vision')}") from None
    Image.init()
    known = [name for name in FORMATS if name in Image.OPEN]  # AVIF may not be built in
    try:
        with Image.open(file if isinstance(file, Path) else io.BytesIO(file), "r", known) as image:
            return _pixels(image, "L" if channels == 1 else "RGB")
    except FileNotFoundError:
        raise DataError(f"{location}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{location} is a directory; name an image in it") from None
    except UnidentifiedImageError:
        raise DataError(
            f"{location} is not an image in a supported format ({', '.join(known)})"
        ) from None
    except Image.DecompressionBombError:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6
        raise DataError(
            f"{location} has more than {limit} million pixels; reduce its size"
        ) from None
    except Exception as error:
        # What a broken file raises depends on its format; even SyntaxError occurs.
        reason = first_line(error)
        raise DataError(f"{location} cannot be read as an image: {reason}") from None


def read_idx(path: Path) -> NDArray[Any]:
    """The array in an IDX file, the format of MNIST, plain or compressed with gzip.  Raises
    DataError."""
    with reading(path):
        with path.open("rb") as file:
            compressed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if compressed else path.open("rb") as file:
            dtype, shape = _idx_header(file, path)
            unpacked = math.prod(shape) * dtype.itemsize
            if compressed and unpacked > IDX_LIMIT.most() << 20:
                raise DataError(
                    f"{path} unpacks to {unpacked >> 20} MiB, above the limit; "
                    f"{IDX_LIMIT.remedy()}, or unpack it with gunzip"
                )
            return _idx_values(file, path, dtype, shape)


def _pixels(image: PillowImage, mode: str) -> Tensor:
    from PIL import Image, ImageOps

    ImageOps.exif_transpose(image, in_place=True)
    if image.mode == "F":
        raise ValueError("floating-point pixels are not supported; save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        image = Image.fromarray(_eight_bits(np.asarray(image)))
    if image.mode == "La":
        image = image.convert("LA")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    pixels = np.array(image.convert(mode))  # a copy: pillow's own array is read-only
    return torch.from_numpy(pixels).view(*pixels.shape[:2], -1).permute(2, 0, 1).contiguous()


def _eight_bits(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    """Scale grey values of 16 bits, 0 to 65535, to the nearest of 0 to 255."""
    wide = pixels.astype(np.int64)
    if wide.min() < 0 or wide.max() > 65535:
        raise ValueError("32-bit pixels are not supported; save it with 8 or 16 bits")
    return ((wide + 128) // 257).astype(np.uint8)


def _idx_header(file: Any, path: Path) -> tuple[np.dtype[Any], tuple[int, ...]]:
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in IDX_TYPES or not start[3]:
        raise DataError(
            f"{path} is not an IDX file: it begins with {start.hex(' ') or 'nothing'}, not "
            "with 00 00, a type (08 to 0e) and the number of dimensions"
        )
    sizes = file.read(4 * start[3])
    if len(sizes) < 4 * start[3]:
        raise DataError(f"{path} has a truncated header; download it again")
    return np.dtype(IDX_TYPES[start[2]]), struct.unpack(f">{start[3]}I", sizes)


def _idx_values(
    file: Any, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    # A damaged header may tell any size, so memory is taken only for bytes that are there.
    expected = math.prod(shape) * dtype.itemsize
    data = bytearray()
    while len(data) <= expected and (
        chunk := file.read(min(CHUNK_BYTES, expected + 1 - len(data)))
    ):
        data += chunk
    if len(data) != expected:
        available = f"only {len(data)}" if len(data) < expected else "more"
        sizes = " x ".join(map(str, shape))
        raise DataError(
            f"{path}: the header declares {sizes} values ({expected} bytes), but {available} bytes "
            "follow; download it again"
        )
    try:
        values = np.frombuffer(data, dtype).reshape(shape)
    except ValueError as error:  # sizes that have a 0 among them, or too many dimensions
        raise DataError(f"{path} has an invalid header ({error})") from None
    return values.astype(dtype.newbyteorder("="), copy=False)
