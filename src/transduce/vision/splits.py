"""Shared code of tasks on images: sources of images, and their splits."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from transduce.errors import DataError, InputError, printable_name
from transduce.settings.sections import section
from transduce.tasks.recipe import Split, SplitsConfig, place_of, source_of
from transduce.training.log import ProgressCounter
from transduce.vision.data import ImageFolder, ImagesConfig, ImageStore, cached_images, fingerprint
from transduce.vision.images import ImageConfig, normalise_pixels, read_image


@section
class ImageDataConfig(SplitsConfig):
    """Images for training, validation and test."""

    train: ImagesConfig | None = None
    valid: ImagesConfig | None = None
    test: ImagesConfig | None = None
    hold_out: Annotated[float, Field(gt=0, le=0.25)] = 0.05
    """Share of the training images to hold out for each split; equal images stay together."""


@dataclass(frozen=True)
class SplitImages:
    """The images of a split, a subset of a store."""

    store: ImageStore
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def labels(self) -> list[str]:
        """The label or caption of each, on a single line."""
        return [" ".join(self.store.labels[i].split()) for i in self.rows]

    @property
    def classes(self) -> list[str]:
        """The labels as names of classes."""
        return [printable_name(self.store.labels[i]) for i in self.rows]

    def pixels(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(b, c, h, w) images, by number in this split."""
        return self.store.images[self.rows[rows]]

    def normalised(self, rows: Sequence[int], shape: ImageConfig, size: int) -> Iterator[Tensor]:
        """Images by number, as a model takes them (b, c, h, w), `size` at a time.

        rows: numbers of the images.  shape: section `image` of the recipe.
        """
        for start in range(0, len(rows), size):
            chosen = np.array(rows[start : start + size])
            yield normalise_pixels(torch.from_numpy(self.pixels(chosen)), shape)


def labels_set(data: ImageDataConfig) -> list[str] | None:
    """The labels of the training images in their order, where the settings name them."""
    if not isinstance(data.train, ImageFolder) or data.train.labels is None:
        return None
    return list(dict.fromkeys(printable_name(label) for label in data.train.labels))


def training_images(
    data: ImageDataConfig, shape: ImageConfig, cache: Path
) -> dict[Split, SplitImages]:
    """The images to train on and to validate with.  Raises DataError if there are none.

    data: the section of the recipe.  shape: section `image` of the recipe.  cache: directory of
    decoded images.
    """
    names: tuple[Split, ...] = ("train", "valid")
    splits = {name: read_images_of(data, shape, name, cache) for name in names}
    for name, images in splits.items():
        if not len(images):
            raise DataError(
                f"data.hold_out leaves no images to {name} with; change it, or set data.valid"
            )
    return splits


def read_images_of(
    data: ImageDataConfig, shape: ImageConfig, split: Split, cache: Path
) -> SplitImages:
    """Images of a split, decoded into `cache` if missing.

    Held-out splits of the training images go by pixels, so that equal images stay together. Raises
    DataError if reading fails.

    data: the section of the recipe.  shape: section `image` of the recipe.
    """
    source = source_of(data, split, "images")
    store = _stored(source.section, Path(data.root), shape, cache)
    if source.is_whole:
        return SplitImages(store, np.arange(len(store)))
    places = np.array([place_of(_digest(image)) for image in store.images])
    return SplitImages(store, np.flatnonzero(source.holds(places)))


def equal_images(images: SplitImages) -> list[list[int]]:
    """Numbers in this split of the images that are equal, by their first appearance."""
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(images.rows):
        groups.setdefault(_digest(images.store.images[row]), []).append(i)
    return list(groups.values())


def named_images(
    inputs: Sequence[tuple[str, ...]], shape: ImageConfig, numbers: Sequence[int], size: int
) -> Iterator[Tensor]:
    """Images given by their paths, normalised (b, c, h, w), `size` at a time.

    numbers: of the inputs, for messages.  Raises InputError for a file that is not an image.
    """
    for start in range(0, len(inputs), size):
        images = []
        for (path,), number in zip(inputs[start:][:size], numbers[start:], strict=False):
            try:
                image = read_image(Path(path), shape.channels, path)
            except DataError as error:
                raise InputError(number, str(error)) from None
            images.append(normalise_pixels(image[None], shape))
        yield torch.cat(images)


def _digest(image: NDArray[np.uint8]) -> str:
    return hashlib.blake2b(image.tobytes(), digest_size=16).hexdigest()


def _stored(config: ImagesConfig, root: Path, shape: ImageConfig, cache: Path) -> ImageStore:
    mark = fingerprint(config, root)
    # With the shape, for runs side by side that take the same images at other sizes.
    name = f"images-{mark[:16]}-{shape.channels}x{shape.size}-{shape.fit}"
    with ProgressCounter("decoding images") as count:
        return cached_images(config, root, shape, cache / name, mark, count.to)
