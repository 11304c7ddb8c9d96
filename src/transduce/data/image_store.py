"""Image pixels on disk: decoded and resized once, then memory-mapped.

    DIRECTORY/
        images-HASH.u8   the pixels of all images in a row, each (c, size, size) bytes
        images.json      fingerprint, name and shape of that file, and the labels

Both are written aside and then renamed, the manifest last: it names a complete file or none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from transduce.data.images import ImagesConfig, LabelledImage, read_images
from transduce.errors import writing
from transduce.image.transform import ImageConfig, fit_square
from transduce.support.limits import from_json
from transduce.support.locks import whole_file
from transduce.support.work import available_cores, chunks

VERSION = 1
MANIFEST = "images.json"
CHUNK_IMAGES = 64  # decoded together; few, for each may be a large photograph
MAX_THREADS = 16
ABANDONED_SECONDS = 24 * 3600


@dataclasses.dataclass(frozen=True)
class ImageStore:
    """Images (n, c, h, w) of one size, read-only in a memory-mapped file, with n classes or
    captions."""

    images: NDArray[np.uint8]
    labels: list[str]

    @staticmethod
    def open(directory: Path, fingerprint: str) -> ImageStore | None:
        """Open the images; None if absent, incomplete, or with another fingerprint."""
        try:
            manifest = from_json((directory / MANIFEST).read_bytes())
            if manifest["version"] != VERSION or manifest["fingerprint"] != fingerprint:
                return None
            path, shape = directory / manifest["file"], tuple(manifest["shape"])
            labels = manifest["labels"]
            if path.stat().st_size != math.prod(shape) or len(labels) != shape[0]:
                return None
            # A plain array over the mapping: indexing it costs less.
            return ImageStore(np.asarray(np.memmap(path, np.uint8, "r", shape=shape)), labels)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def __len__(self) -> int:
        return len(self.labels)


def cached_images(
    config: ImagesConfig,
    root: Path,
    shape: ImageConfig,
    directory: Path,
    fingerprint: str,
    progress: Callable[[int], None] | None = None,
) -> ImageStore:
    """Open decoded images, or decode them now with a thread per processor.

    shape: supplies size, channels and fit.  fingerprint: identifies the inputs.  progress: called
    now and then with the number of images so far.  Raises DataError for the first unreadable image,
    and for a directory that cannot be written.
    """
    facts = [fingerprint, shape.size, shape.channels, shape.fit]
    whole = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    store = ImageStore.open(directory, whole)
    if store is not None:
        return store
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        _write(read_images(config, root), shape, directory, whole, progress)
    store = ImageStore.open(directory, whole)
    assert store is not None, directory
    return store


def _write(
    images: Iterable[LabelledImage],
    shape: ImageConfig,
    directory: Path,
    fingerprint: str,
    progress: Callable[[int], None] | None,
) -> None:
    name = f"images-{fingerprint[:16]}.u8"
    labels: list[str] = []
    with whole_file(directory / name) as file:
        for pixels, label in _decoded(images, shape):
            file.write(pixels)
            labels += label
            if progress is not None:
                progress(len(labels))
    manifest = {
        "version": VERSION,
        "fingerprint": fingerprint,
        "file": name,
        "shape": [len(labels), shape.channels, shape.size, shape.size],
        "labels": labels,
    }
    with whole_file(directory / MANIFEST) as file:
        file.write(json.dumps(manifest).encode() + b"\n")
    _remove_old(directory, name)


def _decoded(
    images: Iterable[LabelledImage], shape: ImageConfig
) -> Iterator[tuple[bytes, list[str]]]:
    """Pixels of a chunk of images, concatenated, and their labels."""

    def decode(image: LabelledImage) -> bytes:
        pixels = fit_square(image.decode(shape.channels), shape.size, shape.fit)
        return pixels.contiguous().numpy().tobytes()

    with ThreadPoolExecutor(min(available_cores(), MAX_THREADS)) as pool:
        for chunk in chunks(images, CHUNK_IMAGES):
            yield b"".join(pool.map(decode, chunk)), [image.label for image in chunk]


def _remove_old(directory: Path, current: str) -> None:
    with contextlib.suppress(OSError):
        for path in directory.glob("images-*.u8"):
            if path.name != current:
                path.unlink()
        for path in directory.glob(".images*.partial"):
            if path.stat().st_mtime < time.time() - ABANDONED_SECONDS:
                path.unlink()
