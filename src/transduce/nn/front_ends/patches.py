"""Patches of an image to vectors (Dosovitskiy et al. 2021, ViT).  Shapes, besides the package's
letters: c channels, g rows and columns of patches, p pixels of a side, n = g · g patches."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transduce.errors import DataError, SettingError
from transduce.sequence import Padded


class PatchFrontEnd(nn.Module):
    """Square patches that do not overlap, row by row, through a linear layer.

    image_size: side in pixels of training images; others are accepted if patches divide their
    sides. class_token: prepend a trained vector, whose output represents the whole image.  stem:
    widths of 3x3 convolutions in front, each followed by GELU and max pooling that halves the sides
    (Hassani et al. 2021, CCT), so that patch_size is in pixels of the stem's output.
    """

    def __init__(
        self,
        image_size: int,
        channels: int,
        patch_size: int,
        d_model: int,
        class_token: bool,
        stem: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.image_size = image_size
        self.channels = channels
        self.patch_size = patch_size
        self.pixels = patch_size << len(stem)  # side of the receptive field of a patch
        if image_size % self.pixels:
            raise SettingError(
                f"a patch of {self.pixels} pixels (patch_size, doubled by each layer of the stem) "
                f"does not divide image_size, {image_size}"
            )
        self.stem = _stem(channels, stem)
        self.projection = nn.Linear((stem or (channels,))[-1] * patch_size**2, d_model)
        self.class_token: nn.Parameter | None = None
        if class_token:
            self.class_token = nn.Parameter(torch.empty(d_model).normal_(std=0.02))

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches in an image of the size trained on."""
        side = self.image_size // self.pixels
        return side, side

    @property
    def n_positions(self) -> int:
        """Vectors that an image of the size trained on becomes, its class token included."""
        rows, columns = self.grid
        return rows * columns + (self.class_token is not None)

    def forward(self, images: Tensor) -> Padded:
        """Images (b, c, h, w) -> vectors (b, n, m), or (b, 1 + n, m) with a class token.  Raises
        DataError for images that cannot be cut into patches."""
        _, channels, h, w = images.shape
        if channels != self.channels:
            raise DataError(
                f"the images have {channels} channels; this model expects {self.channels}"
            )
        if not h or not w or h % self.pixels or w % self.pixels:
            raise DataError(
                f"an image of {w} x {h} pixels cannot be cut into patches of {self.pixels} x "
                f"{self.pixels}; resize it to {self.image_size} x {self.image_size}"
            )
        vectors = self.projection(_patches(self.stem(images), self.patch_size))
        if self.class_token is not None:
            front = self.class_token.to(vectors.dtype).expand(len(vectors), 1, -1)
            vectors = torch.cat([front, vectors], 1)
        return Padded.unpadded(vectors)


def interpolate_positions(
    table: Tensor, grid: tuple[int, int], new_grid: tuple[int, int], class_token: bool
) -> Tensor:
    """Learned positions (n, m), or (1 + n, m) with a class token in front, for another number of
    patches: bicubic, in proportion to the image.  grid, new_grid: rows and columns of patches."""
    rows, columns = grid
    assert len(table) == rows * columns + class_token, (table.shape, grid)
    if grid == new_grid:
        return table
    front, patches = table[: int(class_token)], table[int(class_token) :]
    picture = patches.float().view(1, rows, columns, -1).permute(0, 3, 1, 2)  # (1, m, g, g)
    picture = F.interpolate(picture, new_grid, mode="bicubic", align_corners=False)
    return torch.cat([front, picture[0].flatten(1).T.to(table.dtype)])


def _patches(images: Tensor, p: int) -> Tensor:
    """(b, c, g·p, g·p) -> (b, n, c·p·p), each patch channel by channel, row by row."""
    b, c, h, w = images.shape
    cut = images.reshape(b, c, h // p, p, w // p, p)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(b, (h // p) * (w // p), c * p * p)


def _stem(channels: int, widths: tuple[int, ...]) -> nn.Sequential:
    # No norm between: from He's first values a few layers train as well without, and a map in
    # full resolution is where a norm costs the most time.
    layers: list[nn.Module] = []
    for before, width in itertools.pairwise((channels, *widths)):
        convolution = nn.Conv2d(before, width, 3, padding=1)
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        layers += [convolution, nn.GELU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers)
