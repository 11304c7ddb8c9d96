"""Encoder over image patches, ViT (Dosovitskiy et al. 2021), and a text decoder over it."""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from transduce.errors import DataError, SettingError
from transduce.models.encoder_decoder import EncoderDecoder
from transduce.models.encoder_only import EncoderOnly
from transduce.nn.front_ends.front_end import FrontEnd
from transduce.nn.front_ends.text import TextFrontEnd
from transduce.nn.heads.label import LabelHead, PoolingHead
from transduce.nn.heads.vocabulary import VocabularyHead
from transduce.nn.initialise import initialise
from transduce.nn.positions import LearnedPositions
from transduce.nn.stack_configs import (
    BASE_STACK,
    SMALL_STACK,
    Count,
    Pooling,
    TransformerConfig,
    check_heads,
)
from transduce.nn.transformer import TransformerDecoder, TransformerEncoder
from transduce.sequence import Padded
from transduce.settings.sections import section


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
    patches: bicubic, in proportion to the image.  grid, new_grid: rows and columns of patches.

    table: the positions.  class_token: True if a vector for it stands in front.
    """
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


@section
class VisionConfig:
    """A ViT; the defaults are of a size for small images and one machine."""

    d_model: Count = 128
    """Width of the model, everywhere."""
    patch_size: Count = 4
    """Side of a patch, in pixels of the image or of the stem's output."""
    stem: tuple[Count, ...] = ()
    """Widths of 3x3 convolutions in front, each halving the sides; they help small data."""
    class_token: bool = False
    """Represent the image by a trained class token, as in the paper; otherwise by the mean."""
    encoder: TransformerConfig = SMALL_STACK(d_ff=256, positions="learned", dropout=0.0)
    label_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropped from the pooled vector before the labels."""

    def __post_init__(self) -> None:
        check_heads(self.encoder, self.d_model)

    @property
    def pooling(self) -> Pooling:
        """Pooling of the patches, for the vector of an image."""
        return "first" if self.class_token else "mean"

    def label_head(self, n_labels: int) -> LabelHead:
        """A new head for labels."""
        return LabelHead(self.d_model, n_labels, self.pooling, False, self.label_dropout)

    def check_size(self, image_size: int) -> None:
        """Raises SettingError when images of this size cannot be cut into whole patches."""
        pixels = self.patch_size << len(self.stem)
        if image_size % pixels:
            raise SettingError(
                f"a patch of {pixels} pixels (patch_size, doubled by each layer of the stem) does "
                f"not divide image.size = {image_size}; change one of them"
            )


# Dosovitskiy et al. 2021, ViT-B/16: 86.57 million parameters with 1,000 labels, 224 x 224 pixels.
VIT_B16 = VisionConfig(
    d_model=768,
    patch_size=16,
    class_token=True,
    encoder=BASE_STACK(activation="gelu", norm_order="pre", norm_epsilon=1e-6),
)
VISION_PRESETS = {"vit-b16": VIT_B16}
"""Presets of encoders of images."""


def vision_encoder(
    config: VisionConfig, image_size: int, channels: int
) -> tuple[PatchFrontEnd, TransformerEncoder]:
    """Front end and encoder for images of this size, with just as many positions as they need.

    config: of the model.  image_size: in pixels.  channels: of the images.
    """
    front_end = PatchFrontEnd(
        image_size, channels, config.patch_size, config.d_model, config.class_token, config.stem
    )
    stack = dataclasses.replace(config.encoder, max_positions=front_end.n_positions)
    return front_end, TransformerEncoder(stack, config.d_model)


@section
class CaptioningConfig:
    """A ViT without its head under a text decoder."""

    vision: VisionConfig = VisionConfig()
    """Image encoder; its d_model is used for the whole model."""
    decoder: TransformerConfig = TransformerConfig(
        n_layers=2, n_heads=4, d_ff=256, norm_order="pre", dropout=0.1
    )

    def __post_init__(self) -> None:
        check_heads(self.decoder, self.d_model)

    @property
    def d_model(self) -> int:
        """Width of the whole model."""
        return self.vision.d_model


def build_captioning(
    config: CaptioningConfig, image_size: int, channels: int, vocabulary_size: int
) -> EncoderDecoder:
    """A freshly initialised model from images to text; its output matrix is the embedding.

    config: of the model.  image_size: in pixels.  channels: of the images.  vocabulary_size: in
    tokens.
    """
    d_model = config.d_model
    front_end, encoder = vision_encoder(config.vision, image_size, channels)
    target = TextFrontEnd(vocabulary_size, d_model)
    decoder = TransformerDecoder(config.decoder, d_model)
    head = VocabularyHead(d_model, vocabulary_size)
    model = EncoderDecoder(front_end, encoder, target, decoder, head)
    initialise(model, d_model)
    _shrink_positions(encoder)
    head.weight = target.embedding.weight
    return model


def build_vision(
    config: VisionConfig, image_size: int, channels: int, head: LabelHead | PoolingHead
) -> EncoderOnly:
    """A freshly initialised encoder of images.

    config: of the model.  image_size: in pixels.  channels: of the images.  head: on top of the
    encoder.
    """
    front_end, encoder = vision_encoder(config, image_size, channels)
    model = EncoderOnly(front_end, encoder, head)
    initialise(model, config.d_model)
    _shrink_positions(encoder)
    return model


def fit_positions(front_end: FrontEnd) -> Callable[[str, Tensor], Tensor]:
    """Adapter of learned positions, by name and value, of other image sizes to this front end."""
    assert isinstance(front_end, PatchFrontEnd)
    grid, token = front_end.grid, front_end.class_token is not None

    def fit(name: str, tensor: Tensor) -> Tensor:
        side = math.isqrt(max(len(tensor) - token, 0)) if tensor.dim() else 0
        if name != "encoder.positions.table.weight" or side**2 + token != len(tensor):
            return tensor
        return interpolate_positions(tensor, (side, side), grid, token)

    return fit


def _shrink_positions(encoder: TransformerEncoder) -> None:
    """Initial learned positions as in the paper, small relative to the patch vectors."""
    if isinstance(encoder.positions, LearnedPositions):
        nn.init.normal_(encoder.positions.table.weight, std=0.02)
