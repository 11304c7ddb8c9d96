"""Images of the usual formats to tensors, with light augmentation."""

from transduce.image.read import read_idx, read_image
from transduce.image.transform import (
    AugmentationConfig,
    Fit,
    ImageConfig,
    augment,
    fit_square,
    normalise,
    resize,
)

__all__ = [
    "AugmentationConfig",
    "Fit",
    "ImageConfig",
    "augment",
    "fit_square",
    "normalise",
    "read_idx",
    "read_image",
    "resize",
]
