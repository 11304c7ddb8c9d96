"""Images as pixels: files read, resized, normalised, lightly augmented.

Shapes: b images, c channels, h rows, w columns.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from transduce.errors import DataError, SettingError, first_line, needs_extra, reading
from transduce.sequence import moved
from transduce.settings.sections import section, to_dict
from transduce.support.files import IDX_LIMIT

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
    # Of a size below the limit, and of damaged EXIF, without which the pixels are as they are.
    warnings.filterwarnings("ignore", module=r"PIL\.")
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
    image = image if image.mode == mode else image.convert(mode)
    pixels = np.array(image)  # a copy: pillow's own array is read-only
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


Fit = Literal["squash", "crop"]
Amount = Annotated[int, Field(ge=0)]
Numbers = tuple[Annotated[float, Field(allow_inf_nan=False)], ...]


@section
class ImageConfig:
    """Preparation of images for a model."""

    size: Annotated[int, Field(ge=1)]
    """Side of the square, in pixels."""
    channels: Literal[1, 3] = 3
    """1 for grey, 3 for red, green and blue."""
    fit: Fit = "squash"
    """Handling of images that are not square: squash them, or crop the longer side."""
    mean: Numbers = (0.5,)
    """Subtracted from the pixels, which run from 0 to 1: one number, or one for each channel."""
    std: Numbers = (0.5,)
    """Divisor of the pixels after that: one number, or one for each channel."""

    def __post_init__(self) -> None:
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) not in (1, self.channels):
                raise SettingError(
                    f"{name} has {len(numbers)} numbers; give one, or one for each of the "
                    f"{self.channels} channels"
                )
        if min(self.std) <= 0:
            raise SettingError(f"std must be greater than 0, not {min(self.std)}")

    def of_each_channel(self) -> dict[str, Any]:
        """All settings, with a mean and a divisor for each channel."""
        numbers = {"mean": self.mean, "std": self.std}
        n = self.channels
        whole = {name: list(each * n if len(each) == 1 else each) for name, each in numbers.items()}
        return {**to_dict(self), **whole}


@section
class AugmentationConfig:
    """Random changes to training images that preserve their meaning."""

    flip: bool = False
    """Mirror left and right, half of the time.  Unsuitable for letters and digits."""
    shift: Amount = 0
    """Move by up to this many pixels each way, mirroring the image at its borders."""
    rotate: Annotated[float, Field(ge=0, le=180)] = 0.0
    """Rotate by up to this many degrees each way."""
    cutout: Amount = 0
    """Side of a square blotted out at a random place (DeVries and Taylor 2017)."""

    def check_size(self, size: int) -> None:
        """Raises SettingError if these settings are too large for the size of the images."""
        for name, amount in (("shift", self.shift), ("cutout", self.cutout)):
            if amount >= size:
                raise SettingError(
                    f"augmentation.{name} is {amount}, but images of {size} pixels allow at most "
                    f"{size - 1}"
                )


def resize(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize images (..., c, h, w), bytes or floats, to `size` rows and columns, smoothed."""
    if images.shape[-2:] == size:
        return images
    flat = images.flatten(0, -4) if images.dim() > 3 else images[None]
    # Bytes are resized as floats, for they have no kernel of their own on every device.
    exact = flat if flat.is_floating_point() else flat.float()
    exact = F.interpolate(exact, size, mode="bilinear", antialias=True, align_corners=False)
    if not images.is_floating_point():
        exact = exact.round().clamp(0, 255).to(images.dtype)
    return exact.view(*images.shape[:-2], *size)


def fit_square(images: Tensor, size: int, fit: Fit) -> Tensor:
    """Images (..., c, h, w) as (..., c, size, size), squashed or cropped at the centre.

    images: (..., c, h, w).  fit: "crop", or else squashed.
    """
    if fit == "crop":
        h, w = images.shape[-2:]
        side = min(h, w)
        top, left = (h - side) // 2, (w - side) // 2
        images = images[..., top : top + side, left : left + side]
    return resize(images, (size, size))


def normalise_pixels(images: Tensor, config: ImageConfig) -> Tensor:
    """Bytes (b, c, h, w) of any size as model input (b, c, size, size): (x / 255 - mean) / std."""
    images = fit_square(images, config.size, config.fit)
    mean, std = (
        moved(torch.tensor(numbers), images.device)[:, None, None]
        for numbers in (config.mean, config.std)
    )
    return (images.float() / 255 - mean) / std


def augment(images: Tensor, config: AugmentationConfig, generator: torch.Generator) -> Tensor:
    """Change each of the normalised images (b, c, h, w) in its own way, by random numbers of
    `generator` alone.  Raises SettingError if images are too small."""
    config.check_size(min(images.shape[-2:]))
    if config.flip:
        mirrored = _uniform(images, 1, generator)[:, 0] < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
    if config.rotate:
        images = _rotated(images, config.rotate, generator)
    if config.shift:
        images = _shifted(images, config.shift, generator)
    if config.cutout:
        images = _cut_out(images, config.cutout, generator)
    return images


def changed(
    images: Tensor, config: ImageConfig, changes: AugmentationConfig, device: torch.device
) -> Tensor:
    """Bytes (b, c, h, w) on the CPU as model input on a device, by torch's random numbers, whose
    state checkpoints keep.

    images: (b, c, h, w) bytes.  config: mean and deviation of pixels.  changes: random ones.
    """
    normal = normalise_pixels(moved(images, device), config)
    return augment(normal, changes, torch.default_generator)


def _uniform(images: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """(b, n) numbers in [0, 1), drawn on the generator's device, moved to the images' device."""
    drawn = torch.rand(len(images), n, generator=generator, device=generator.device)
    return moved(drawn, images.device)


def _rotated(images: Tensor, degrees: float, generator: torch.Generator) -> Tensor:
    angle = (_uniform(images, 1, generator)[:, 0] * 2 - 1) * math.radians(degrees)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    # affine_grid measures both sides from -1 to 1, so a turn must undo the ratio of the sides.
    ratio = images.shape[-2] / images.shape[-1]
    rows = [torch.stack([cos, -sin * ratio, zero], 1), torch.stack([sin / ratio, cos, zero], 1)]
    turns = torch.stack(rows, 1).to(images.dtype)  # (b, 2, 3)
    grid = F.affine_grid(turns, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def _shifted(images: Tensor, most: int, generator: torch.Generator) -> Tensor:
    h, w = images.shape[-2:]
    offsets = (_uniform(images, 2, generator) * (2 * most + 1)).long() - most  # (b, 2)
    rows = _reflected(torch.arange(h, device=images.device) + offsets[:, :1], h)  # (b, h)
    columns = _reflected(torch.arange(w, device=images.device) + offsets[:, 1:], w)  # (b, w)
    images = images.gather(2, rows[:, None, :, None].expand_as(images))
    return images.gather(3, columns[:, None, None, :].expand_as(images))


def _reflected(index: Tensor, size: int) -> Tensor:
    """Reflect indices beyond either end back into the image, without repeating the border."""
    return (size - 1) - ((size - 1) - index.abs()).abs()


def _cut_out(images: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Set a square around a random pixel to zero, the mean; part of it may lie outside."""
    h, w = images.shape[-2:]
    drawn = _uniform(images, 2, generator)
    top = (drawn[:, :1] * h).long() - side // 2  # (b, 1)
    left = (drawn[:, 1:] * w).long() - side // 2
    row, column = torch.arange(h, device=images.device), torch.arange(w, device=images.device)
    in_rows = (row >= top) & (row < top + side)  # (b, h)
    in_columns = (column >= left) & (column < left + side)  # (b, w)
    inside = in_rows[:, None, :, None] & in_columns[:, None, None, :]  # (b, 1, h, w)
    return images.masked_fill(inside, 0.0)
